package drover

import "time"

// Limits of a definition, a run and a request. Each has its own error, that
// names the limit and the value.
const (
	MaxNodes          = 10_000   // nodes in a definition
	MaxFanout         = 10_000   // items in one fan-out
	MaxCalls          = 50_000   // calls in one run, items of all its fan-outs together
	MaxValue          = 1 << 20  // bytes of one input or output, as JSON
	MaxDefinition     = 1 << 20  // bytes of a definition, as JSON
	MaxDepth          = 8        // runs nested in runs
	MaxIdempotencyKey = 1024     // bytes of an idempotency key
	MaxInlineValue    = 2 << 10  // bytes of a value that is kept in the record
	MaxInlineRun      = 64 << 10 // bytes of all values that are kept in one record
	MaxUnread         = 1000     // deliveries of a run that no wait has read
	MaxToken          = 512      // bytes of the token of a hook
	MaxHooks          = 1000     // hooks that a run holds at a time
	MaxMetadata       = 4 << 10  // bytes of the metadata of a hook, of its tags, and of its fixed answer
	MaxSubscribers    = 100      // subscribers of one run
	MaxTags           = 64       // tags of one run
	MaxTag            = 256      // bytes of the key, and of the value, of a tag
)

// Defaults that a definition may override.
const (
	DefaultMaxParallel = 1000             // calls of one run in flight
	DefaultTimeout     = 30 * time.Minute // one attempt of a call
)
