package api

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// keyList is a list of keys, some of them twice.
type keyList []string

func (keyList) Unlist(string, func(error)) {}

func (keyList) List(string, kv.Hint, func(error)) {}

func (l keyList) Scan(_ context.Context, _ string, visit func(string, kv.Hint) bool) error {
	for _, key := range l {
		if !visit(key, kv.HintWaits) {
			return nil
		}
	}
	return nil
}

// A list that is longer than what is kept at a time is gone through in order,
// and whole.
func TestALongListIsReadInParts(t *testing.T) {
	var list keyList
	var want []string
	for i := range 100 {
		run := drover.RunID(fmt.Sprintf("run%02d", (37*i)%100))
		for subscriber := range 3 {
			list = append(list, subjects.DeliveryKey(fmt.Sprint(subscriber), i, run, subscriber))
			want = append(want, fmt.Sprint(run, subscriber))
		}
		if i%10 == 0 {
			list = append(list, list[i])
		}
	}
	slices.Sort(want)
	for _, most := range []int{1, 7, 299, 300, 301, 1000} {
		s := &Service{Config: Config{Deliveries: list}}
		var got []string
		after, looks := hint{subscriber: -1}, 0
		for more := true; more; looks++ {
			var hints []hint
			var err error
			if hints, more, err = s.hints(t.Context(), after, most); err != nil || len(hints) == 0 || len(hints) > most {
				t.Fatalf("%d at a time: %d hints, error %v", most, len(hints), err)
			}
			for _, h := range hints {
				got = append(got, fmt.Sprint(h.run, h.subscriber))
			}
			after = hints[len(hints)-1]
		}
		if looks != (len(want)+most-1)/most || !slices.Equal(got, want) {
			t.Errorf("%d at a time: %d hints in %d looks", most, len(got), looks)
		}
	}
}
