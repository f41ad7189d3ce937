package join

import (
	"strings"
	"testing"
)

func TestTokenIsReadAsItIsPrinted(t *testing.T) {
	t.Parallel()
	pin := strings.Repeat("Ab_-", 10) + "abc"
	for _, tok := range []Token{{"abcdef", "0123456789abcdef", pin}, {"abc123", "zzzzzzzzzzzzzzzz", ""}, NewToken(pin)} {
		if got, err := ParseToken(" " + tok.String() + "\n"); err != nil || got != tok {
			t.Errorf("ParseToken(%q) = %v, %v; want %v", tok, got, err, tok)
		}
		if id, err := ParseTokenID(tok.String()); err != nil || id != tok.ID {
			t.Errorf("ParseTokenID(%q) = %q, %v; want %q", tok, id, err, tok.ID)
		}
		if id, err := ParseTokenID(tok.ID); err != nil || id != tok.ID {
			t.Errorf("ParseTokenID(%q) = %q, %v; want the same", tok.ID, id, err)
		}
	}
	if a, b := NewToken(""), NewToken(""); a == b {
		t.Errorf("two new tokens are both %v", a)
	}
}

func TestWhatIsNoTokenIsRefusedWithoutBeingRepeated(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "one part": "abcdef", "short": "abcdef.fedcba987654321", "long": "abcdef.fedcba98765432100", "capitals": "ABCDEF.fedcba9876543210",
		"pin cut off": "abcdef.fedcba9876543210.AbCd", "no pin": "abcdef.fedcba9876543210.", "pin of other letters": "abcdef.fedcba9876543210." + strings.Repeat("+", 43),
		"too much": "abcdef.fedcba9876543210." + strings.Repeat("A", 43) + ".x",
	} {
		got, err := ParseToken(text)
		if err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
			continue
		}
		if !strings.Contains(err.Error(), "kemudi token create") {
			t.Errorf("%s: %q does not say what to do", name, err)
		}
		if len(text) > 16 && strings.Contains(err.Error(), text[7:]) {
			t.Errorf("%s: %q has the secret in it", name, err)
		}
	}
}
