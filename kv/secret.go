package kv

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// secretSize is how many bytes the secret of a fleet has.
const secretSize = 32

// Secret reads first: a write that is refused costs the leader as much as one
// that is not, and every worker but the first would be refused.
func (f *fleet) Secret(ctx context.Context) ([]byte, error) {
	secret, err := f.secret(ctx)
	if !errors.Is(err, drover.CodeNotFound) {
		return secret, err
	}
	made := make([]byte, secretSize)
	_, _ = rand.Read(made) // never fails
	if _, err := f.create(ctx, subjects.SecretKey(), made); err != nil && !errors.Is(err, ErrConflict) {
		return nil, err
	}
	return f.secret(ctx) // somebody else's may have been the first
}

func (f *fleet) secret(ctx context.Context) ([]byte, error) {
	e, err := f.read(ctx, subjects.SecretKey())
	switch {
	case err != nil:
		return nil, err
	case !e.there():
		return nil, drover.Errorf(drover.CodeNotFound, "the fleet has no secret yet")
	case len(e.Data) != secretSize: // not shown
		return nil, drover.Errorf(drover.CodeInternal, "key %q of the fleet must hold %d bytes, and holds %d: delete it, and restart the workers",
			subjects.SecretKey(), secretSize, len(e.Data))
	}
	return e.Data, nil
}
