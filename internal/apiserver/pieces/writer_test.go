package pieces

import (
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

func TestItemsOfAListComeInOrderHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, stretch, Few, Few + 1, 2*Few + stretch, 100 * Few} {
		var want strings.Builder
		for i := range n {
			want.WriteString(strconv.Itoa(i) + ",")
		}
		rec := httptest.NewRecorder()
		l := New(rec)
		err := l.Items(n, func(dst []byte, i int) ([]byte, error) { return append(strconv.AppendInt(dst, int64(i), 10), ','), nil })
		l.End()
		if got := rec.Body.String(); err != nil || got != want.String() {
			t.Errorf("%d items: got %d bytes, %v; want %d bytes", n, len(got), err, want.Len())
		}
	}
}

// TestItemThatCannotBeEncodedEndsTheList lets an item of either goroutine fail, or
// panic, which must not end the process.
func TestItemThatCannotBeEncodedEndsTheList(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, bad := range []int{0, stretch + 3, 2 * stretch, 7*stretch + 1, 4*Few - 1} {
		for _, panics := range []bool{false, true} {
			l := &Writer{To: httptest.NewRecorder()}
			err := l.Items(4*Few, func(dst []byte, i int) ([]byte, error) {
				switch {
				case i != bad:
					return append(dst, 'x'), nil
				case panics:
					panic(broken)
				}
				return dst, broken
			})
			if err == nil || !strings.Contains(err.Error(), "broken") {
				t.Errorf("item %d, panics %t: got %v, want the error", bad, panics, err)
			}
		}
	}
}
