package version

import "testing"

func TestLevelsAreOfTheLastReleases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		emulated, compatible []string
		acts, with           uint
		wrong                string
	}{
		{acts: 37, with: 36},
		{emulated: []string{"1.37"}, acts: 37, with: 36},
		{emulated: []string{"kube=1.36"}, acts: 36, with: 35},
		{emulated: []string{"v1.34.0"}, acts: 34, with: 34},
		{emulated: []string{"1.36"}, compatible: []string{"kube=1.36"}, acts: 36, with: 36},
		{compatible: []string{"1.37"}, acts: 37, with: 37},
		{emulated: []string{"1.38"}, wrong: "emulation version 1.38 is not between [1.34, 1.37]"},
		{emulated: []string{"1.33"}, wrong: "emulation version 1.33 is not between [1.34, 1.37]"},
		{emulated: []string{"1.35"}, compatible: []string{"1.36"}, wrong: "minCompatibilityVersion version 1.36 is not between [1.34, 1.35]"},
		{compatible: []string{"1.33"}, wrong: "minCompatibilityVersion version 1.33 is not between [1.34, 1.37]"},
		{emulated: []string{"1.36.1"}, wrong: "patch version not allowed, got: kube=1.36.1"},
		{emulated: []string{"wardle=1.2"}, wrong: "component not registered: wardle"},
		{emulated: []string{"1.36", "kube=1.35"}, wrong: "duplicate version flag, kube=1.36 and kube=1.35"},
		{emulated: []string{"new"}, wrong: `could not parse "new" as version`},
	} {
		l, err := ParseLevel(c.emulated, c.compatible)
		if c.wrong != "" {
			if err == nil || err.Error() != c.wrong {
				t.Errorf("%v, %v: got %v, want %s", c.emulated, c.compatible, err, c.wrong)
			}
			continue
		}
		if err != nil || l.Emulates() != c.acts || l.Compatible() != c.with {
			t.Errorf("%v, %v: got %d and %d, %v, want %d and %d", c.emulated, c.compatible, l.Emulates(), l.Compatible(), err, c.acts, c.with)
		}
		if got := l.Info(); got.EmulationMinor != Text(c.acts)[2:] || got.MinCompatibilityMinor != Text(c.with)[2:] || got.Minor != "37" {
			t.Errorf("%v, %v: got %+v", c.emulated, c.compatible, got)
		}
	}
	if (Level{}).Info() != Info() {
		t.Errorf("usually: got %+v, want %+v", Level{}.Info(), Info())
	}
}
