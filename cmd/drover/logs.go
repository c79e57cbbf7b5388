package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

// logs says how a process logs.
type logs struct {
	format string // text or json
	level  string
}

func (l *logs) flags(cmd *cobra.Command, level string) {
	f := cmd.Flags()
	f.StringVar(&l.format, "log-format", "text", "text or json")
	f.StringVar(&l.level, "log-level", level, "debug, info, warn or error")
	fromEnvironment(cmd, "log-format", "log-level")
}

// logger makes the logger.
func (l *logs) logger(w io.Writer) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(l.level)
	if err != nil || l.level == "" {
		return zerolog.Nop(), usageError("--log-level %q must be debug, info, warn or error", l.level)
	}
	switch l.format {
	case "json":
	case "text":
		_, _, terminal := terminalSize(w)
		w = zerolog.ConsoleWriter{Out: w, NoColor: !terminal || os.Getenv("NO_COLOR") != "", TimeFormat: time.TimeOnly}
	default:
		return zerolog.Nop(), usageError("--log-format %q must be text or json", l.format)
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
}

// forFunctions is the logger in the shape that package function takes.
func forFunctions(log zerolog.Logger) *slog.Logger {
	return slog.New(zerolog.NewSlogHandler(log))
}
