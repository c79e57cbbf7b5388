package api

import (
	"fmt"
	"testing"

	"github.com/droverhq/drover"
)

func TestHooks20AReplyHasSoManyResultsAndFailedOnesFirst(t *testing.T) {
	var all []drover.HookResult
	for i := range 3 * maxList {
		r := drover.HookResult{Token: fmt.Sprintf("t%04d", i)}
		if i%3 == 2 && i > maxList {
			r.Error = drover.Errorf(drover.CodeFull, "full")
		}
		all = append(all, r)
		if len(all) >= 2*maxList {
			all = worst(all)
		}
	}
	all = worst(all)
	failed := 0
	for _, r := range all {
		if r.Error != nil {
			failed++
		}
	}
	if len(all) != maxList || failed != 667 || all[0].Error == nil || all[maxList-1].Token != "t0332" {
		t.Errorf("%d results, %d failed, from %+v to %+v", len(all), failed, all[0], all[len(all)-1])
	}
}

func TestAHookThatIsVisitedTwiceIsListedOnceAsItIsNow(t *testing.T) {
	hooks := []drover.Hook{{Token: "b"}, {Token: "c"}, {Token: "a", Starting: true}, {Token: "a"}}
	if more := keepHooks(&hooks, 3); more || len(hooks) != 3 || hooks[0].Token != "a" || hooks[0].Starting {
		t.Errorf("more %v, hooks %+v", more, hooks)
	}
	if more := keepHooks(&hooks, 2); !more || len(hooks) != 2 || hooks[1].Token != "b" {
		t.Errorf("more %v, hooks %+v", more, hooks)
	}
}
