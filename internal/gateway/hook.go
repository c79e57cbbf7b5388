package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
)

// The paths.
const (
	hooksPath  = "/hooks/" // and the token behind it, with percent escapes
	healthPath = "/healthz"
)

// ServeHTTP answers a request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath() // as it came: nothing is cleaned or redirected
	token, toHook := strings.CutPrefix(path, hooksPath)
	switch {
	case path == healthPath && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		g.health(w)
	case !toHook || token == "":
		empty(w, http.StatusNotFound)
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		empty(w, http.StatusMethodNotAllowed)
	default:
		g.hook(w, r, token)
	}
}

// health says whether this gateway has a server to talk to.
func (g *Gateway) health(w http.ResponseWriter) {
	if !g.nc.IsConnected() {
		busy(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	write(w, http.StatusOK, []byte("ok\n"))
}

// hook delivers to a hook, and gives its answer.
func (g *Gateway) hook(w http.ResponseWriter, r *http.Request, escaped string) {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		busy(w)
		return
	}
	token, err := url.PathUnescape(escaped)
	if err != nil || token == "" || len(token) > drover.MaxToken || !utf8.ValidString(token) {
		empty(w, http.StatusNotFound)
		return
	}
	began := time.Now()
	inbox, reply, err := g.deliver(w, r, token)
	if inbox != nil {
		defer inbox.close()
	}
	g.log.Debug().Dur("took", time.Since(began)).Str("code", string(codeOf(err))).Msg("a delivery came by HTTP")
	// Something is written even where nobody seems to be there: else it is 200.
	if err != nil {
		g.refuse(w, err)
		return
	}
	g.answer(w, r, reply.Answer, inbox)
}

// deliver reads a request and delivers what it says. Its memory for the body is
// free again when it returns. The inbox is set where the run may answer to it.
func (g *Gateway) deliver(w http.ResponseWriter, r *http.Request, token string) (*inbox, drover.HookReply, error) {
	none := drover.HookReply{}
	if !g.nc.IsConnected() {
		// What is sent now would leave when the server is back, long after the
		// caller has been told that it is not known.
		return nil, none, drover.Errorf(drover.CodeUnavailable, "there is no connection to a server")
	}
	id, err := deliveryID(r.Header)
	if err != nil {
		return nil, none, err
	}
	body := &body{left: &g.memory}
	defer body.free()
	payload, err := body.payload(w, r)
	if err != nil {
		return nil, none, err
	}
	answers, err := g.listen(g.inbox(token, id))
	if err != nil {
		return nil, none, drover.Errorf(drover.CodeUnavailable, "no inbox: %v", err)
	}
	req := drover.HookRequest{Token: token, Payload: payload, ID: id, Public: true, Respond: answers.subject}
	reply, err := g.client.DeliverHook(r.Context(), req)
	return answers, reply, err
}

// A key of a caller is no id of somebody who delivers by NATS: else it would
// tell what that one has delivered to a hook that is not public.
const (
	idPrefix = "http:"
	maxKey   = 250 // bytes
)

// deliveryID is the id that the caller gives, or "".
func deliveryID(h http.Header) (string, error) {
	keys := h.Values("Idempotency-Key")
	switch {
	case len(keys) == 0 || len(keys) == 1 && keys[0] == "":
		return "", nil
	case len(keys) > 1 || len(keys[0]) > maxKey || !utf8.ValidString(keys[0]):
		return "", drover.Errorf(drover.CodeInvalidRequest, "there must be one Idempotency-Key, of at most %d bytes of UTF-8", maxKey)
	}
	return idPrefix + keys[0], nil
}

// inbox is the subject for the answer to a delivery. Repeats of one delivery
// have the same, so that each that still waits gets the answer.
func (g *Gateway) inbox(token, id string) string {
	if id == "" {
		id = rand.Text()
	}
	sum := sha256.Sum256([]byte(token + "\x00" + id)) // a token may contain zeros, but no inbox is secret from who knows the token
	return g.inboxes + hex.EncodeToString(sum[:16])
}

// inbox gets the answers of a run.
type inbox struct {
	subject string
	ch      chan *nats.Msg
	sub     *nats.Subscription
}

func (g *Gateway) listen(subject string) (*inbox, error) {
	// More than one comes only if a worker that crashed says it again.
	in := &inbox{subject: subject, ch: make(chan *nats.Msg, 4)}
	var err error
	in.sub, err = g.nc.ChanSubscribe(subject, in.ch)
	return in, err
}

func (in *inbox) close() { _ = in.sub.Unsubscribe() }

// codeOf is the code of an error, or "" where there is none.
func codeOf(err error) drover.Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*drover.Error](err); ok {
		return e.Code
	}
	if errors.Is(err, context.Canceled) {
		return drover.CodeUnavailable
	}
	return drover.CodeInternal
}

// refuse answers a delivery that was not accepted, or of which it is not known.
func (g *Gateway) refuse(w http.ResponseWriter, err error) {
	if odd, ok := errors.AsType[*oddBody](err); ok {
		fault(w, odd.status, odd.err)
		return
	}
	told := drover.AsError(err, codeOf(err))
	switch told.Code {
	case drover.CodeNotFound, drover.CodeTerminal, drover.CodeReleased:
		empty(w, http.StatusNotFound)
	case drover.CodeInvalidInput:
		fault(w, http.StatusUnprocessableEntity, told)
	case drover.CodeInvalidRequest:
		fault(w, http.StatusBadRequest, told)
	case drover.CodeTooLarge:
		fault(w, http.StatusRequestEntityTooLarge, told)
	case drover.CodeConflict:
		empty(w, http.StatusConflict)
	case drover.CodeFull:
		w.Header().Set("Retry-After", retryAfter)
		empty(w, http.StatusTooManyRequests)
	case drover.CodeUnavailable:
		busy(w)
	default:
		g.log.Error().Str("code", string(told.Code)).Msg("a delivery by HTTP failed")
		empty(w, http.StatusInternalServerError)
	}
}

// fault answers with an error. Only what is about the request is told: the run
// that it was for is not the caller's business.
func fault(w http.ResponseWriter, status int, e *drover.Error) {
	data, err := rawjson.Encode(drover.Error{Code: e.Code, Message: e.Message})
	if err != nil {
		empty(w, status)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	write(w, status, data)
}
