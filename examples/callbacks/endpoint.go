package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

const (
	maxBody   = 8 << 20          // bytes of the largest outcome that there is
	readTime  = 30 * time.Second // for a whole request
	closeTime = 10 * time.Second // for requests that are answered when the end comes
)

// serve is the endpoint of webhooks at POST /outcomes, until ctx ends.
func serve(ctx context.Context, address, secrets string, s *store) error {
	verifier, err := newVerifier(secrets)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /outcomes", &endpoint{verifier: verifier, store: s})
	server := &http.Server{Handler: mux, ReadTimeout: readTime}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s/outcomes", listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	err = server.Shutdown(late)
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// newVerifier reads the secrets in a file, whatever else is in it: that of the
// workers will do, and so does a list. While a secret is changed there are two.
func newVerifier(file string) (*client.WebhookVerifier, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-secrets FILE is needed to verify webhooks: %w", err)
	}
	var secrets []string
	for word := range strings.FieldsSeq(string(data)) {
		if strings.HasPrefix(word, "whsec_") {
			secrets = append(secrets, word)
		}
	}
	return client.NewWebhookVerifier(secrets...)
}

type endpoint struct {
	verifier *client.WebhookVerifier
	store    *store
}

// ServeHTTP answers with 200, which is the receipt, once the outcome is kept.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	if _, err := e.verifier.Verify(r.Header, body); err != nil {
		log.Print(err) // it shows no secret
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	receipt := e.store.keep(json.RawMessage(body))[0]
	switch {
	case receipt.Error == nil:
		_, _ = io.WriteString(w, receipt.Receipt) // a receipt that gets lost does no harm
	case receipt.Error.Code == drover.CodeForbidden:
		http.Error(w, receipt.Error.Message, http.StatusGone) // it does not come again
	default:
		http.Error(w, receipt.Error.Message, http.StatusInternalServerError)
	}
}
