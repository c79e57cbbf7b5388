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
body has closed the stream, or when the run is over. With --json each chunk is a line {"chunk", "type", "data", "at"},
in which the data of bytes is base64.`,
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
				for chunk, err := range c.Stream(ctx, id, args[1]) {
					switch {
					case err != nil && ctx.Err() != nil:
						return context.Cause(ctx)
					case err != nil:
						return err
					}
					if err := a.chunk(&chunk); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	a.conn.flags(cmd, 0)
	cmd.Flags().DurationVar(&limit, "timeout", 0, "how long to read at most; 0: no limit")
	return cmd
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
