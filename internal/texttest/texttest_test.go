package texttest

import "testing"

func TestDiffShowsTheLinesThatDifferAndTheOneBefore(t *testing.T) {
	for _, c := range []struct{ got, want, diff string }{
		{"a\nb\nc", "a\nx\ny\nc", "f:2: after \"a\"\ngot:\nb\nwant:\nx\ny"},
		{"a\nb", "a", "f:2: after \"a\"\ngot:\nb\nwant:\n"},
		{"a\na", "a\na\na", "f:3: after \"a\"\ngot:\n\nwant:\na"},
		{"", "a", "f:1: after \"a\"\ngot:\n\nwant:\na"},
	} {
		if got := diff("f", c.got, c.want); got != c.diff {
			t.Errorf("%q, %q: got\n%s\nwant\n%s", c.got, c.want, got, c.diff)
		}
	}
}
