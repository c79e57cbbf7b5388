package subjects

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/droverhq/drover"
)

// maxSubject is how long a subject may be that a user names.
const maxSubject = 512

// Foreign checks a subject that a user names, and that a worker is to publish
// on with its own rights: a request, the delivery of an outcome, an answer. It
// must be one that can be published on, and must belong neither to the server
// ("$JS.API.STREAM.DELETE.X") nor to this fleet ("drover.in.run.stop"), so that
// nobody borrows the rights of the worker.
func (n Names) Foreign(subject string) error {
	bad := func(why string) error {
		shown := subject
		if len(shown) > 80 {
			shown = strings.ToValidUTF8(shown[:77], "") + "..."
		}
		return drover.Errorf(drover.CodeForbidden, "subject %q %s: name a subject of your own", shown, why)
	}
	if subject == "" || len(subject) > maxSubject || !utf8.ValidString(subject) {
		return bad("must be 1 to 512 bytes of UTF-8")
	}
	for part := range strings.SplitSeq(subject, ".") {
		if part == "" || part == "*" || part == ">" {
			return bad("has an empty part or a wildcard, and cannot be published on")
		}
		if strings.ContainsFunc(part, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return bad("contains white space, and cannot be published on")
		}
	}
	if strings.HasPrefix(subject, "$") {
		return bad("belongs to the server")
	}
	if root, _, _ := strings.Cut(subject, "."); root == n.prefix {
		return bad("belongs to Drover")
	}
	return nil
}

// ForeignNotify does the same for the subjects of those who are told an outcome.
func (n Names) ForeignNotify(list drover.NotifyList) error {
	for i := range list {
		subject := list[i].Subject + list[i].StreamSubject // one of them, or none
		if subject == "" {
			continue
		}
		if err := n.Foreign(subject); err != nil {
			e := drover.AsError(err, drover.CodeForbidden)
			return drover.Errorf(e.Code, "notify %d cannot be: %s", i, e.Message)
		}
	}
	return nil
}
