package server

import (
	"bytes"
	"io"
	"testing"
)

func TestUnreadOutputIsWhatFollowsTheReadOne(t *testing.T) {
	t.Parallel()
	for seen, want := range map[int64]string{0: "onetwo|err", 2: "etwo|err", 4: "two|rr", 9: "|", 100: "|"} {
		var out, errOut bytes.Buffer
		skip := seen
		for _, part := range []struct {
			w    io.Writer
			text string
		}{{remainder{&skip, &out}, "one"}, {remainder{&skip, &errOut}, "err"}, {remainder{&skip, &out}, "two"}} {
			if n, err := io.WriteString(part.w, part.text); n != len(part.text) || err != nil {
				t.Errorf("write %s: got %d, %v", part.text, n, err)
			}
		}
		if got := out.String() + "|" + errOut.String(); got != want {
			t.Errorf("after %d bytes: got %q, want %q", seen, got, want)
		}
	}
}
