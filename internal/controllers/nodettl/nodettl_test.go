package nodettl

import "testing"

func TestStepsOverlapSoThatANodeThatComesAndGoesChangesNothing(t *testing.T) {
	t.Parallel()
	at := 0
	for _, c := range []struct{ nodes, seconds int }{
		{1, 0}, {100, 0}, {101, 15}, {100, 15}, {90, 15}, {89, 0}, {500, 15}, {501, 30}, {450, 30}, {449, 15}, {3000, 300}, {1800, 300}, {1799, 60}, {0, 0},
	} {
		if at = next(at, c.nodes); steps[at].seconds != c.seconds {
			t.Errorf("%d nodes: got %d seconds, want %d", c.nodes, steps[at].seconds, c.seconds)
		}
	}
}
