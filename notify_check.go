package drover

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// Problem says why nobody can be told so, with the fix, or "". What may be a
// secret is not in it.
func (n *Notify) Problem() string {
	_, why := n.problem()
	return why
}

// problem is Problem, and the key that it is about; "": the whole.
func (n *Notify) problem() (key, why string) {
	ways := 0
	for _, is := range []bool{n.Subject != "", n.StreamSubject != "", n.URL != "", n.Function != "", n.Session != ""} {
		if is {
			ways++
		}
	}
	if ways != 1 {
		return "", fmt.Sprintf("it says in %d ways who is told: give exactly one of subject, stream_subject, url and function", ways)
	}
	for _, check := range []func() (string, string){n.checkWho, n.checkOwn, n.checkSession, n.checkBounds} {
		if key, why = check(); why != "" {
			return key, why
		}
	}
	return "", ""
}

// checkWho checks who is told.
func (n *Notify) checkWho() (key, why string) {
	switch {
	case n.Subject != "":
		return "subject", publishable(n.Subject)
	case n.StreamSubject != "":
		if strings.HasPrefix(n.StreamSubject, "drover.") {
			return "stream_subject", fmt.Sprintf("subject %s is Drover's own, and no stream of yours has it", quote(n.StreamSubject))
		}
		return "stream_subject", publishable(n.StreamSubject)
	case n.URL != "":
		return "url", checkURL(n.URL)
	case n.Function != "":
		if _, err := ParseFunctionName(string(n.Function)); err != nil || n.Function[0] == '_' {
			return "function", fmt.Sprintf("function %s must be a name of letters, digits, - or _ with single dots between, that does not begin with _", quote(string(n.Function)))
		}
	}
	return "", ""
}

// checkURL does not show the URL, which may have a secret.
func checkURL(text string) string {
	const most = 2048
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > most || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Sprintf("its url must be https://<host>/... or http://<host>/..., in at most %d bytes", most)
	case u.User != nil:
		return "its url has a user or password, which whoever sees the run would see: leave it out, the signature says who sends"
	}
	return ""
}

// checkOwn checks what belongs to one way of telling only.
func (n *Notify) checkOwn() (key, why string) {
	const name = 128
	switch b := n.Batch; {
	case strings.HasPrefix(n.Secret, "whsec_"): // not shown
		return "secret", "secret is a secret, and must be the name that the workers know it by: put it into their file, and give the name"
	case n.Secret != "" && n.URL == "":
		return "secret", "secret goes with url only: leave it out"
	case len(n.Secret) > name || !utf8.ValidString(n.Secret):
		return "secret", fmt.Sprintf("the name of its secret must be text of at most %d bytes", name)
	case b != nil && n.Subject == "":
		return "batch", "batch goes with subject only: leave it out"
	case b != nil && (b.Max < 2 || b.Max > MaxBatch):
		return "batch", fmt.Sprintf("batch.max is %d, and must be from 2 to %d", b.Max, MaxBatch)
	case b != nil && (b.Wait < 0 || time.Duration(b.Wait) > MaxBatchWait):
		return "batch", fmt.Sprintf("batch.wait is %s, and must be at most %s", b.Wait, MaxBatchWait)
	}
	return "", ""
}

// checkSession checks what Drover alone sets.
func (n *Notify) checkSession() (key, why string) {
	const session, seal = 512, 128
	switch {
	case n.Session == "" && (n.Seal != "" || n.Template != ""):
		return "", "template and seal go with reply_to only: leave them out"
	case n.Session != "" && n.Seal == "":
		return "", "session is set by Drover alone: ask the API to start the run, with reply_to"
	case len(n.Session) > session || len(n.Seal) > seal || len(n.Template) > MaxTemplate:
		return "", fmt.Sprintf("its session may have %d bytes, its seal %d, and its template %d", session, seal, MaxTemplate)
	}
	return "", ""
}

// checkBounds checks how long and how often it is tried.
func (n *Notify) checkBounds() (key, why string) {
	switch {
	case n.Timeout != 0 && n.Function != "":
		return "timeout", "timeout does not go with function, whose call stays in the queue until max_age: leave it out"
	case n.Timeout < 0 || time.Duration(n.Timeout) > MaxReceiptTime:
		return "timeout", fmt.Sprintf("timeout is %s, and must be at most %s", n.Timeout, MaxReceiptTime)
	case n.MaxAge < 0 || time.Duration(n.MaxAge) > MaxDeliveryAge:
		return "max_age", fmt.Sprintf("max_age is %s, and must be at most %s", n.MaxAge, MaxDeliveryAge)
	case n.MaxAttempts < 0:
		return "max_attempts", fmt.Sprintf("max_attempts is %d, and must not be negative", n.MaxAttempts)
	}
	return "", ""
}

// publishable says why nobody may be told on a subject, or "".
func publishable(subject string) string {
	if why := unpublishable(subject); why != "" {
		return fmt.Sprintf("nobody can be told on subject %s: %s", quote(subject), why)
	}
	return ""
}

func unpublishable(subject string) string {
	const most = 256
	if len(subject) > most {
		return fmt.Sprintf("it must have at most %d bytes", most)
	}
	tokens := strings.Split(subject, ".")
	for _, token := range tokens {
		if token == "" || strings.ContainsAny(token, "*>") {
			return "it must be tokens that are joined by single dots, without wildcards"
		}
	}
	for _, r := range subject {
		if r <= ' ' || r == 0x7f || r == utf8.RuneError {
			return "it may not hold spaces or control characters"
		}
	}
	if strings.HasPrefix(tokens[0], "$") {
		return "subjects that begin with $ are the server's"
	}
	if tokens[0] == "drover" {
		return "it is Drover's own"
	}
	return ""
}
