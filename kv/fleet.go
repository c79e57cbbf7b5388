package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// fleet is the bucket of members and partitions.
type fleet struct{ *bucket }

// markTTL is how long the mark of a member that left stays for watchers.
const markTTL = time.Minute

func (f *fleet) Join(ctx context.Context, id string, info []byte, ttl time.Duration) (Member, error) {
	seconds, err := wholeSeconds(ttl)
	if err != nil {
		return Member{}, err
	}
	key := subjects.MemberKey(id)
	e, err := f.read(ctx, key)
	if err != nil {
		return Member{}, err
	}
	if e.there() {
		if !bytes.Equal(e.Data, info) {
			return Member{}, fmt.Errorf("%w: a worker with the id %q is a member already", ErrConflict, id)
		}
	}
	return f.lease(ctx, Member{ID: id, Info: info, Revision: e.Revision}, seconds)
}

func (f *fleet) Renew(ctx context.Context, m Member, ttl time.Duration) (Member, error) {
	seconds, err := wholeSeconds(ttl)
	if err != nil {
		return m, err
	}
	renewed, err := f.lease(ctx, m, seconds)
	if !errors.Is(err, ErrConflict) {
		return renewed, err
	}
	// It may have been an earlier renewal whose answer was missing.
	e, err2 := f.read(ctx, subjects.MemberKey(m.ID))
	if err2 != nil {
		return m, err2
	}
	if !e.there() || !bytes.Equal(e.Data, m.Info) && !bytes.Equal(e.Data, m.Stored) {
		return m, err
	}
	m.Revision = e.Revision
	return f.lease(ctx, m, seconds)
}

// lease writes the key of a member that has the revision of m.
func (f *fleet) lease(ctx context.Context, m Member, seconds string) (Member, error) {
	msg := f.message(subjects.MemberKey(m.ID), m.Revision, m.Info)
	msg.Header[subjects.HeaderTTL] = []string{seconds}
	revision, err := f.write(ctx, msg)
	if err != nil {
		return m, fmt.Errorf("the lease of worker %q could not be written: %w", m.ID, err)
	}
	m.Revision, m.Stored = revision, m.Info
	return m, nil
}

func (f *fleet) Leave(ctx context.Context, m Member) error {
	key := subjects.MemberKey(m.ID)
	msg := f.message(key, m.Revision, nil)
	msg.Header[subjects.HeaderOperation] = []string{"DEL"}
	msg.Header[subjects.HeaderTTL] = []string{markTTL.String()}
	_, err := f.write(ctx, msg)
	if errors.Is(err, ErrConflict) {
		e, err2 := f.read(ctx, key)
		if err2 != nil {
			return err2
		}
		if !e.there() || !bytes.Equal(e.Data, m.Info) {
			return nil
		}
		msg.Header[subjects.HeaderExpectedSubject] = []string{strconv.FormatUint(e.Revision, 10)}
		_, err = f.write(ctx, msg)
	}
	return err
}

// wholeSeconds spells a lease for the server, which cuts fractions off.
func wholeSeconds(ttl time.Duration) (string, error) {
	if ttl < time.Second || ttl%time.Second != 0 {
		return "", drover.Errorf(drover.CodeInvalidRequest, "a lease of %v must be whole seconds, at least one", ttl)
	}
	return strconv.Itoa(int(ttl/time.Second)) + "s", nil
}

func (f *fleet) Partition(ctx context.Context, number int) (Partition, error) {
	e, err := f.read(ctx, subjects.PartitionKey(number))
	if err != nil {
		return Partition{}, err
	}
	return partition(number, e)
}

func (f *fleet) Save(ctx context.Context, p Partition) (Partition, error) {
	saved, err := f.save(ctx, p)
	if !errors.Is(err, ErrConflict) {
		return saved, err
	}
	stored, err2 := f.Partition(ctx, p.Number)
	if err2 != nil {
		return p, err2
	}
	if !p.Ours(stored) {
		return p, err
	}
	p.Revision = stored.Revision
	return f.save(ctx, p)
}

func (f *fleet) save(ctx context.Context, p Partition) (Partition, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return p, err
	}
	revision, err := f.write(ctx, f.message(subjects.PartitionKey(p.Number), p.Revision, data))
	if err != nil {
		return p, fmt.Errorf("partition %d could not be saved: %w", p.Number, err)
	}
	p.Revision = revision
	return p, nil
}

// partition reads what is stored of a partition. Its mark, which nobody but an
// operator makes, is an empty partition that has a revision.
func partition(number int, e entry) (Partition, error) {
	p := Partition{}
	if e.there() {
		if err := json.Unmarshal(e.Data, &p); err != nil {
			return p, drover.Errorf(drover.CodeInternal, "key %q does not hold a partition: %v", subjects.PartitionKey(number), err)
		}
	}
	p.Number, p.Revision = number, e.Revision
	return p, nil
}
