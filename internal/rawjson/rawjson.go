// Package rawjson makes JSON that is no larger than it has to be.
//
// encoding/json spells <, > and & as six bytes each, for the sake of HTML that
// nobody makes of it here. A value that is mostly such characters, as a page of
// HTML is, would not fit into a message or under a limit any more; and one
// delivery, spelled in two ways, would look like two. So whatever carries values
// of users is made here. It is below every other package.
//
// What comes out is valid JSON for any reader, in one line. It is not canonical:
// keys of structs are in the order of their fields, and raw parts stay as they
// are but for white space.
package rawjson

import (
	"bytes"
	"encoding/json"
)

// Encode is json.Marshal without the escapes that only HTML needs.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// AppendString appends a text as a JSON string. Bytes that are no UTF-8 become
// U+FFFD.
func AppendString(b []byte, s string) []byte {
	text, _ := Encode(s) // a text cannot fail
	return append(b, text...)
}
