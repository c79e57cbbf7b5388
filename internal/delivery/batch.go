package delivery

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

const (
	batchOpening = `{"outcomes":[`
	batchEnd     = `]}`
	batchHeaders = 256 // bytes that the headers of a batch and its frame may have
)

// ready is how many jobs may be sent now as one attempt. A batch waits until it is
// full, or the first of it has waited for long enough.
func (t *target) ready(now time.Time, maxPayload int) int {
	b := t.notify.Batch
	if b == nil {
		return 1
	}
	n, size := 0, batchHeaders
	for _, q := range t.queue[:min(len(t.queue), max(b.Max, 1))] {
		if size += len(q.job.Body) + 1; n > 0 && size > maxPayload {
			return n // no other would fit
		}
		n++
	}
	if n < b.Max && now.Before(t.queue[0].at.Add(time.Duration(b.Wait))) {
		return 0
	}
	return n
}

// batchBody is drover.OutcomeBatch, in which each outcome has the bytes that it has
// by itself.
func batchBody(jobs []*Job) []byte {
	size := len(batchOpening) + len(batchEnd) + len(jobs)
	for _, j := range jobs {
		size += len(j.Body)
	}
	body := append(make([]byte, 0, size), batchOpening...)
	for i, j := range jobs {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, j.Body...)
	}
	return append(body, batchEnd...)
}

// judgeBatch gives each job the receipt that the answer has for it. An id that is
// there twice counts as the first says.
func (a *attempt) judgeBatch(data []byte) {
	var answer struct {
		Receipts *[]drover.BatchReceipt `json:"receipts"`
	}
	to := where(&a.jobs[0].Notify)
	if err := json.Unmarshal(data, &answer); err != nil || answer.Receipts == nil {
		a.all(verdict{err: drover.Errorf(drover.CodeFailed,
			"%s answered a batch with %.80q, which has no receipts: answer {\"receipts\":[{\"delivery_id\":...}]}", to, data)})
		return
	}
	receipts := make(map[drover.DeliveryID]drover.BatchReceipt, len(*answer.Receipts))
	for _, r := range slices.Backward(*answer.Receipts) {
		receipts[r.DeliveryID] = r
	}
	for i, j := range a.jobs {
		r, ok := receipts[j.ID]
		v := verdict{receipt: r.Receipt, err: r.Error}
		switch {
		case !ok:
			v.err = drover.Errorf(drover.CodeFailed, "the reply of %s has no receipt for %s", to, j.ID)
		case v.err != nil && v.err.Code == "":
			v.err.Code = drover.CodeFailed
		}
		a.verdicts[i] = v
	}
}
