package machine

import (
	"time"

	"github.com/droverhq/drover"
)

func checkHold(h *drover.HoldRequest) *drover.Error {
	if h.For < 0 || time.Duration(h.For) > drover.MaxHold {
		return drover.Errorf(drover.CodeInvalidRequest, "a hold for %s must be for at most %s: make another before it is over", h.For, drover.MaxHold)
	}
	return checkWaiter(h.Waiter)
}

func checkWaiter(name string) *drover.Error {
	const most = 128
	if name == "" || len(name) > most {
		return drover.Errorf(drover.CodeInvalidRequest, "waiter %q must be 1 to %d bytes that nobody else uses", cut(name, 60), most)
	}
	return nil
}

func checkHeard(m *drover.HeardMessage) *drover.Error {
	switch {
	case m.Error == nil && m.Unmade:
		return drover.Errorf(drover.CodeInvalidRequest, "delivery %q was not made, and has no error that says why: give one", cut(string(m.DeliveryID), 160))
	case m.Error != nil && m.Error.Code == "":
		m.Error.Code = drover.CodeFailed
	}
	return nil
}
