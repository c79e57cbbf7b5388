package sim

import (
	"slices"
	"testing"
)

// lines are what must happen in worlds with deliveries, by the lines of the cases of
// outcomes and their delivery: a world in which it never does shows nothing of them.
var lines = []string{
	"Delivery01 a subject gave a receipt",
	"Delivery01 a receipt of a subject was lost",
	"Delivery01 a stream_subject gave a receipt",
	"Delivery01 a receipt of a stream_subject was lost",
	"Delivery01 a stream stored what it did not acknowledge",
	"Delivery01 a stream dropped what it had",
	"Delivery01 a stream was full",
	"Delivery01 a stream takes no message so large",
	"Delivery01 something that is no stream answered",
	"Delivery01 a url gave a receipt",
	"Delivery01 a receipt of a url was lost",
	"Delivery01 a webhook was signed with the new secret",
	"Delivery01 a function gave a receipt",
	"Delivery02 a session was named with a wrong seal of kind 0",
	"Delivery02 a session was named with a wrong seal of kind 1",
	"Delivery02 a session was named with a wrong seal of kind 2",
	"Delivery02 a session was named with a wrong seal of kind 3",
	"Delivery02 a session was told completed",
	"Delivery02 a session was told failed",
	"Delivery02 a session was told cancelled",
	"Delivery02 a session was told compensated",
	"Delivery01 a session gave a receipt",
	"Delivery01 a receipt of a session was lost",
	"Delivery03 a run is in the stream as completed",
	"Delivery03 a run is in the stream as failed",
	"Delivery03 a run is in the stream as cancelled",
	"Delivery03 a run is in the stream as compensated",
	"Delivery03 an outcome was published again",
	"Delivery04 a waiter took the outcome",
	"Delivery04 a waiter came too late",
	"Delivery05 a run was told as completed",
	"Delivery05 a run was told as failed",
	"Delivery05 a run was told as cancelled",
	"Delivery05 a run was told as compensated",
	"Delivery06 a waiter gave up, and its run went on",
	"Delivery06 a waiter died",
	"Delivery07 a delivery came again with the same id and bytes",
	"Delivery08 several went in one request",
	"Delivery08 a request was lost",
	"Delivery08 a receipt was missing",
	"Delivery08 some of a batch failed",
	"Delivery08 the answer to a batch had no receipts",
	"Delivery08 what failed of a batch came again",
	"Delivery09 a delivery was made at once, as its subscriber was there again",
	"Delivery10 an attempt found nobody, and was not counted",
	"Delivery11 a worker died between a receipt and its record",
	"Delivery11 a removal was found half done",
	"Delivery12 an operator replayed",
	"Delivery12 a dead delivery was kept for the retention",
	"Delivery12 a dead delivery was replayed while its run went",
	"Delivery12 a run that was to go was changed before",
	"Delivery13 a run was started again under its id",
	"Delivery13 a run that was started again was told and removed",
	"Delivery13 a command met a run that was half removed",
	"Delivery14 a redirect was not followed",
	"Delivery14 a webhook had no answer in time",
	"Delivery14 a webhook was answered with 410",
	"Delivery14 a webhook was answered with another error",
	"Delivery14 nobody took the connection of a webhook",
	"Delivery14 there was no secret to sign a webhook with",
}

// enough is how many worlds must have shown all of their lines.
const enough = 400

// shown holds that everything of a list was seen in so many worlds, and that what
// they say they saw of a line is on the list.
func shown(t *testing.T, seen Seen, list []string, worlds int) {
	t.Helper()
	if worlds < enough {
		t.Logf("%d worlds are too few to show all of %d lines", worlds, len(list))
		return
	}
	for _, what := range list {
		t.Run(what, func(t *testing.T) {
			t.Log(seen[what])
			if seen[what] == 0 {
				t.Error("it did not happen at all: the worlds have become too tame")
			}
		})
	}
	for what := range seen {
		if !slices.Contains(list, what) {
			t.Errorf("%q is not on the list of what must happen", what)
		}
	}
}
