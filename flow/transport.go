package flow

import (
	"context"

	"github.com/droverhq/drover"
)

// Transport carries what a body has to say to the owner of its run. Its errors
// are what the owner refuses, as *drover.Error, or those of a context that ended:
// it tries until there is an answer.
type Transport interface {
	// Record makes records durable. It may send them any number of times.
	Record(ctx context.Context, run drover.RunID, m *drover.RecordRequest) (*drover.RecordReply, error)
	// Journal reads the whole journal from an entry on; with 1 the input as well.
	Journal(ctx context.Context, run drover.RunID, from int) (*drover.JournalReply, error)
	// StreamTail reads the last message of a stream, from where none is missed.
	StreamTail(ctx context.Context, run drover.RunID, id string) (StreamTail, error)
	// StreamAppend stores messages together, and gives the sequence of the last one.
	// Its error has the code conflict where the last message of the stream has not
	// the sequence after: nothing is stored then, or it was before.
	StreamAppend(ctx context.Context, run drover.RunID, id string, after uint64, messages []StreamMessage) (uint64, error)
}
