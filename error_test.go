package drover

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestErrorOfKeepsTheCodeOfTheHeader(t *testing.T) {
	for _, c := range []struct {
		code, body string
		want       Error
	}{
		{"full", `{"code":"full","message":"no room","permanent":true}`, Error{Code: "full", Message: "no room", Permanent: true}},
		{"full", `{"code":"failed","message":"no room"}`, Error{Code: "full", Message: "no room"}},
		{"full", `{"message":"no room"}`, Error{Code: "full", Message: "no room"}},
		{"full", `no room`, Error{Code: "full", Message: "no room"}},
		{"full", `{"message":"no room","permanent":"yes"}`, Error{Code: "full", Message: `{"message":"no room","permanent":"yes"}`}},
		{"full", `{"ok":true}`, Error{Code: "full", Message: `{"ok":true}`}},
		{"full", `null`, Error{Code: "full", Message: "null"}},
		{"full", "no \xff room", Error{Code: "full", Message: "no  room"}},
		{"full", "", Error{Code: "full"}},
		{"full", strings.Repeat("x", 5000), Error{Code: "full", Message: strings.Repeat("x", maxOddError)}},
	} {
		got := ErrorOf(c.code, []byte(c.body))
		if got == nil || got.Code != c.want.Code || got.Message != c.want.Message || got.Permanent != c.want.Permanent {
			t.Errorf("%.80q: %+v", c.body, got)
		}
	}
	if e := ErrorOf("", []byte(`{"code":"full","message":"no room"}`)); e != nil {
		t.Errorf("an answer without the header is the error %v", e)
	}
}

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Code
	}{
		{Errorf(CodeFull, "x"), CodeFull},
		{fmt.Errorf("x: %w", Errorf(CodeFull, "x")), CodeFull},
		{fmt.Errorf("%w: x", CodeConflict), CodeConflict},
		{fmt.Errorf("x: %w", &Error{Code: CodeFull}), CodeFull},
		{errors.New("x"), CodeInternal},
		{nil, CodeInternal},
	} {
		if got := CodeOf(c.err, CodeInternal); got != c.want {
			t.Errorf("the code of %v is %s, not %s", c.err, got, c.want)
		}
	}
}
