package seal_test

import (
	"errors"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/seal"
)

func TestDelivery02ASealIsGoodForItsRunAndSessionAlone(t *testing.T) {
	secret := []byte("of the fleet")
	good := seal.Seal(secret, "r1", "user.NORTH.ann")
	for name, c := range map[string]struct {
		secret        []byte
		run           drover.RunID
		session, seal string
		want          bool
	}{
		"as it was made":   {secret, "r1", "user.NORTH.ann", good, true},
		"another run":      {secret, "r2", "user.NORTH.ann", good, false},
		"another session":  {secret, "r1", "user.NORTH.bob", good, false},
		"moved boundary":   {secret, "r1\nuser", ".NORTH.ann", good, false},
		"another fleet":    {[]byte("of another"), "r1", "user.NORTH.ann", good, false},
		"no seal":          {secret, "r1", "user.NORTH.ann", "", false},
		"a part of a seal": {secret, "r1", "user.NORTH.ann", good[:32], false},
		"no secret":        {nil, "r1", "user.NORTH.ann", seal.Seal(nil, "r1", "user.NORTH.ann"), false},
	} {
		if got := seal.Check(c.secret, c.run, c.session, c.seal); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestDelivery02StartsAreAdmittedBySeal(t *testing.T) {
	secret := []byte("of the fleet")
	start := &drover.StartRequest{Notify: drover.NotifyList{
		{Subject: "shop.done"}, {Session: "call.s", Seal: seal.Seal(secret, "r1", "call.s")},
	}}
	if refused := seal.Admit(secret, "r1", start); refused != nil {
		t.Errorf("refused: %v", refused)
	}
	if refused := seal.Admit(secret, "r2", start); !errors.Is(refused, drover.CodeForbidden) {
		t.Errorf("with the seal of another run: %v", refused)
	}
	again := &drover.StartRequest{Notify: seal.Again(secret, "r2", start.Notify)}
	if refused := seal.Admit(secret, "r2", again); refused != nil {
		t.Errorf("sealed again and refused: %v", refused)
	}
	if seal.Admit(secret, "r1", start) != nil || again.Notify[0] != start.Notify[0] {
		t.Error("sealing again has changed what it was given")
	}
}
