package flow_test

import (
	"testing"

	"github.com/droverhq/drover/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }
