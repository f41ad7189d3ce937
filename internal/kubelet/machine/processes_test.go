package machine

import "testing"

func TestProcessesAreCounted(t *testing.T) {
	are, most, err := Processes()
	if err != nil || are < 2 || most < 301 || are >= most {
		t.Errorf("got %d of %d, %v, want this one and some more, and room", are, most, err)
	}
	for text, want := range map[string]int64{"0.20 0.18 0.12 1/803 11206\n": 803, "0.20 0.18 0.12 1/x 1": 0, "0.20 0.18": 0, "": 0} {
		if got, err := countProcesses(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
}
