package main

import (
	"encoding/json"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// one is told one outcome. Any reply is the receipt, but for one that has the
// header of an error.
func (s *store) one(m *nats.Msg) {
	if r := s.keep(m.Data)[0]; r.Error != nil {
		answerError(m, r.Error)
	} else {
		answer(m, nats.Header{}, []byte(r.Receipt))
	}
}

// many is told several outcomes in one request. The reply has a receipt for each.
func (s *store) many(m *nats.Msg) {
	var batch drover.OutcomeBatch
	if err := json.Unmarshal(m.Data, &batch); err != nil {
		answerError(m, drover.Errorf(drover.CodeInvalidInput, "this is no batch of outcomes: %v", err))
		return
	}
	data, _ := json.Marshal(drover.BatchReceipts{Receipts: s.keep(batch.Outcomes...)}) // text and errors, which are JSON
	answer(m, nats.Header{}, data)
}

func answerError(m *nats.Msg, e *drover.Error) {
	data, _ := json.Marshal(e) // as above
	answer(m, nats.Header{subjects.HeaderCode: {string(e.Code)}}, data)
}

// answer replies. A reply that gets lost does no harm: the outcome comes again.
func answer(m *nats.Msg, header nats.Header, data []byte) {
	if err := m.RespondMsg(&nats.Msg{Header: header, Data: data}); err != nil {
		log.Printf("no receipt could be sent: %v", err)
	}
}
