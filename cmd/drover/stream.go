package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

func (a *app) streamCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:     "stream RUN STREAM",
		Short:   "Print a stream that a program writes, from its start and as it comes",
		GroupID: groupRuns,
		Long: `Stream prints what the body of a program writes: text and bytes as they are, JSON as a line each. It ends when the
body has closed the stream, or when the run is over, and exits with 1 where nothing was in it. With --json each chunk
is a line {"chunk", "type", "data", "at"}, in which the data of bytes is base64.`,
		Example: `  drover stream r_2f6c1e answer
  drover stream r_2f6c1e answer --json | jq -r .data`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := drover.ParseRunID(args[0])
			if err != nil {
				return err
			}
			if limit < 0 {
				return usageError("--timeout %s must not be negative", limit)
			}
			ctx := cmd.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, limit, errNotOver(id, limit))
				defer cancel()
			}
			return a.withClient(ctx, func(ctx context.Context, c *client.Client) error {
				if err := writes(ctx, c, id); err != nil {
					return err
				}
				empty := true
				for chunk, err := range c.Stream(ctx, id, args[1]) {
					switch {
					case err != nil && ctx.Err() != nil:
						return context.Cause(ctx)
					case err != nil:
						return err
					}
					empty = false
					if err := a.chunk(&chunk); err != nil {
						return err
					}
				}
				if empty {
					return drover.Errorf(drover.CodeNotFound, "nothing was written to stream %s of run %s, and nothing will be: check its name", args[1], id)
				}
				return nil
			})
		},
	}
	a.conn.flags(cmd, 0)
	cmd.Flags().DurationVar(&limit, "timeout", 0, "how long to read at most; 0: no limit")
	return cmd
}

// writes says why a run writes no streams, or nil.
func writes(ctx context.Context, c *client.Client, id drover.RunID) error {
	status, err := c.Status(ctx, drover.RunRequest{RunID: id, Brief: true})
	if err == nil && status.Run.Program == nil {
		err = drover.Errorf(drover.CodeInvalidRequest, "run %s is no program, and has no streams: ask for its status", id)
	}
	return err
}

// chunk prints one chunk.
func (a *app) chunk(c *drover.Chunk) error {
	if !a.json {
		data := c.Data
		if c.Type == drover.ChunkJSON {
			data = append(data[:len(data):len(data)], '\n')
		}
		_, err := a.out.Write(data)
		return err
	}
	line := struct {
		Chunk int              `json:"chunk"`
		Type  drover.ChunkType `json:"type"`
		Data  any              `json:"data"`
		At    time.Time        `json:"at"`
	}{c.Number, c.Type, c.Data, c.At}
	switch c.Type {
	case drover.ChunkText:
		line.Data = string(c.Data)
	case drover.ChunkJSON:
		line.Data = json.RawMessage(c.Data)
	case drover.ChunkBytes:
	}
	return encodeJSON(a.out, line, "")
}
