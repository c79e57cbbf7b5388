package machine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Token is the proof that whoever shows it was given the call or delivery with
// this id by the run with this secret: an HMAC-SHA256, in hexadecimal.
func Token(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// token is Token with the secret of the run.
func (f *fold) token(text string) string {
	if f.d.mac == nil {
		f.d.mac = hmac.New(sha256.New, []byte(f.s.Secret))
	}
	f.d.mac.Reset()
	f.d.mac.Write([]byte(text))
	var sum [sha256.Size]byte
	return hex.EncodeToString(f.d.mac.Sum(sum[:0]))
}

// fits compares a token in constant time.
func (f *fold) fits(text, token string) bool {
	return hmac.Equal([]byte(f.token(text)), []byte(token))
}
