package drover

import "time"

// ChunkType says what a chunk of a stream is.
type ChunkType string

// The types of chunks.
const (
	ChunkText  ChunkType = "text"  // UTF-8
	ChunkJSON  ChunkType = "json"  // one JSON value
	ChunkBytes ChunkType = "bytes" // anything
)

// MaxChunk is how many bytes one chunk of a stream may have.
const MaxChunk = 256 << 10

// Chunk is one piece of a stream that a program writes.
type Chunk struct {
	Number int // in its stream, from 1, without a gap
	Type   ChunkType
	Data   []byte
	At     time.Time // when it was stored
}
