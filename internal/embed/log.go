package embed

import (
	"fmt"
	"sync"

	"github.com/rs/zerolog"
)

// logger writes what the server says to a zerolog logger. Notices of a server
// are about its inner life, and are debugging for whoever embeds it.
type logger struct {
	log zerolog.Logger

	mu   sync.Mutex
	died string // the first fatal error
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug().Msgf(format, v...) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }
func (l *logger) Tracef(format string, v ...any)  { l.log.Trace().Msgf(format, v...) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn().Msgf(format, v...) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error().Msgf(format, v...) }

// Fatalf does not end the process, as the server's own logger would: Start
// gives the error to whoever embeds it.
func (l *logger) Fatalf(format string, v ...any) {
	l.log.Error().Msgf(format, v...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.died == "" {
		l.died = fmt.Sprintf(format, v...)
	}
}

// fatal is why the server did not come up, or "".
func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.died
}
