package worker

import (
	"context"
	"time"
)

// adoptAgain is after deliveries of partitions that were taken could not be
// looked for.
const adoptAgain = time.Second

// adopt notes that a partition was taken: it may have deliveries that did not
// succeed at once.
func (w *Worker) adopt() {
	select {
	case w.adopted <- struct{}{}:
	default: // what is noted already is as good
	}
}

// adopter has such deliveries tried at once, whenever partitions were taken.
func (w *Worker) adopter(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.adopted:
		}
		err := w.dispatcher.Adopt(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		w.log.Warn().Err(err).Msg("deliveries of partitions that were taken could not be looked for, it is tried again")
		w.adopt()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(adoptAgain):
		}
	}
}
