package join

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Token is what a machine joins with.
type Token struct {
	ID     string // which token it is: no secret
	Secret string
	// Pin is the pin of the cluster's authority ([pki.Pin]): the machine believes no
	// other. Empty: it believes who knows the token.
	Pin string
}

var (
	tokenText = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})(?:\.(.*))?$`)
	tokenID   = regexp.MustCompile(`^[a-z0-9]{6}$`)
)

// errToken says what a token looks like.
var errToken = errors.New("a token is six letters or digits, a dot and sixteen more, then a dot and the cluster's pin (abcdef.0123456789abcdef.PIN): copy it whole from what 'kemudi token create' has printed")

// ParseToken reads the text of a token. Errors do not repeat it.
func ParseToken(s string) (Token, error) {
	s = strings.TrimSpace(s)
	parts := tokenText.FindStringSubmatch(s)
	if parts == nil {
		return Token{}, errToken
	}
	t := Token{ID: parts[1], Secret: parts[2], Pin: parts[3]}
	if strings.Count(s, ".") == 1 {
		return t, nil
	}
	if sum, err := base64.RawURLEncoding.DecodeString(t.Pin); err != nil || len(sum) != sha256.Size {
		return Token{}, fmt.Errorf("the pin of token %s, what follows its second dot, is cut off or mistyped: %w", t.ID, errToken)
	}
	return t, nil
}

// ParseTokenID reads the ID of a token, or takes it from the token's whole text.
func ParseTokenID(s string) (string, error) {
	if s = strings.TrimSpace(s); tokenID.MatchString(s) {
		return s, nil
	}
	t, err := ParseToken(s)
	if err != nil {
		return "", fmt.Errorf("neither the six letters or digits of a token's ID nor a token: %w", err)
	}
	return t.ID, nil
}

// NewToken makes a token for the cluster with the authority of that pin.
func NewToken(pin string) Token { return Token{ID: random(6), Secret: random(16), Pin: pin} }

// String is the token's text, secret included.
func (t Token) String() string {
	if t.Pin == "" {
		return t.Bearer()
	}
	return t.Bearer() + "." + t.Pin
}

// Bearer is the part of the token that the API takes.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// random is n letters and digits, each as likely as any other.
func random(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	const fair = 256 / len(letters) * len(letters) // bytes from here on would favour the first letters
	out, buf := make([]byte, 0, n), make([]byte, 2*n)
	for len(out) < n {
		_, _ = rand.Read(buf) // never fails
		for _, b := range buf {
			if int(b) < fair && len(out) < n {
				out = append(out, letters[int(b)%len(letters)])
			}
		}
	}
	return string(out)
}
