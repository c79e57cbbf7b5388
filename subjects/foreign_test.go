package subjects

import (
	"errors"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

func TestForeignKeepsUsersOffWhatIsNotTheirs(t *testing.T) {
	for _, subject := range []string{
		"", ".", "a.", ".a", "a..b", "a.*", "a.>", ">", "*", "a b", "a\tb", "a\nb", "a\x00", "\xff",
		"$JS.API.STREAM.DELETE.X", "$SYS.REQ", "$KV.B.k", "drover", "drover.in.r.stop", "drover.api.stop",
		"drover.call.r._http", strings.Repeat("a", 513),
	} {
		if err := Default().Foreign(subject); !errors.Is(err, drover.CodeForbidden) {
			t.Errorf("%q: error %v", subject, err)
		}
	}
	for _, subject := range []string{"a", "a.b", "_INBOX.x.y", "droverx.in.r.stop", "a.drover.in", "a.$JS", "a*b"} {
		if err := Default().Foreign(subject); err != nil {
			t.Errorf("%q: %v", subject, err)
		}
	}
}
