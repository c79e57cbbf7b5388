package kv

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// maxPurges is how many requests one sweep makes to remove what it has found. It is
// more where dead values stand among living ones.
const maxPurges = 256

// Sweep removes nothing that was stored after it began: whoever decides which keys
// are dead knows of the rest.
func (v *values) Sweep(ctx context.Context, run drover.RunID, dead func(key string) bool) error {
	last, err := v.Last(ctx)
	if err != nil || last == 0 {
		return err
	}
	keys, whole, err := v.keys(ctx, subjects.ValuesOf(run))
	if err != nil {
		return err
	}
	list := patterns(keys, 1, inList(keys, whole, dead))
	// What takes many goes first.
	slices.SortStableFunc(list, func(a, b string) int { return rank(a) - rank(b) })
	for _, pattern := range list[:min(len(list), maxPurges)] {
		if err := v.purge(ctx, pattern, last); err != nil {
			return err
		}
	}
	return nil
}

func rank(pattern string) int {
	if strings.HasSuffix(pattern, ">") {
		return 0
	}
	return 1
}

// inList is dead for a list of keys that may not be whole: its last key is spared
// then, and with it each front that others have who are not in the list.
func inList(keys []string, whole bool, dead func(string) bool) func(string) bool {
	if whole || len(keys) == 0 {
		return dead
	}
	end := keys[len(keys)-1]
	return func(key string) bool { return key != end && dead(key) }
}

// keys gives the keys that a filter fits, sorted: all of them, or the first ones where
// they are more than the server says at a time (100,000). The lists of two requests
// would not be of the same moment, and living keys might be in neither.
func (b *bucket) keys(ctx context.Context, filter string) (keys []string, whole bool, err error) {
	ask := &nats.Msg{Subject: subjects.ReadInfo(b.name), Data: []byte(`{"subjects_filter":` + strconv.Quote(b.subject+filter) + `}`)}
	m, err := await(ctx, filter, func(done func(*nats.Msg, error)) { b.p.Request(ask, done) })
	if err != nil {
		return nil, false, err
	}
	var a struct {
		Total int `json:"total"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return nil, false, fmt.Errorf("%w: the answer to a list of keys cannot be read: %w", drover.CodeUnavailable, err)
	}
	if a.Error != nil {
		return nil, false, fmt.Errorf("%w: keys %q could not be listed: %w", drover.CodeUnavailable, filter, a.Error)
	}
	for subject := range a.State.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, b.subject))
	}
	slices.Sort(keys)
	return keys, len(keys) >= a.Total, nil
}

// patterns match all of some sorted keys that are dead, and no others of them:
// as few as there can be by cutting keys behind so many parts, or more.
func patterns(keys []string, parts int, dead func(key string) bool) (list []string) {
	for len(keys) > 0 {
		front, longer := cutKey(keys[0], parts)
		if !longer {
			if dead(keys[0]) {
				list = append(list, keys[0])
			}
			keys = keys[1:]
			continue
		}
		n := 1
		for n < len(keys) && strings.HasPrefix(keys[n], front+".") {
			n++
		}
		switch lives := slices.ContainsFunc(keys[:n], func(key string) bool { return !dead(key) }); {
		case lives:
			list = append(list, patterns(keys[:n], parts+1, dead)...)
		case n == 1:
			list = append(list, keys[0])
		default:
			list = append(list, front+".>")
		}
		keys = keys[n:]
	}
	return list
}

// cutKey gives the first parts of a key, and whether it is longer.
func cutKey(key string, parts int) (front string, longer bool) {
	end := 0
	for range parts {
		dot := strings.IndexByte(key[end:], '.')
		if dot < 0 {
			return key, false
		}
		end += dot + 1
	}
	return key[:end-1], true
}
