package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestPluginsAndHalvesAreMeasured(t *testing.T) {
	reg := prometheus.NewRegistry()
	pass := func(context.Context, *Attributes) error { return nil }
	refuse := func(_ context.Context, a *Attributes) error {
		if a.Operation == Update {
			return errors.New("no updates")
		}
		return nil
	}
	c := NewChain(Plugin{Name: "First", Mutate: pass}, Plugin{Name: "Second", Mutate: refuse, Validate: pass}).Measured(reg)
	for _, operation := range []string{Create, Create, Update, "OTHER"} {
		a := &Attributes{Operation: operation}
		if c.Mutate(t.Context(), a) == nil && c.Validate(t.Context(), a) != nil {
			t.Errorf("%s: refused", operation)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			got = append(got, fmt.Sprint(strings.Join(labels, " "), " ", m.Histogram.GetSampleCount()))
		}
	}
	slices.Sort(got)
	want := []string{
		"CREATE false admit 2", "CREATE false validate 2", "First CREATE false admit 2", "First UPDATE false admit 1",
		"Second CREATE false admit 2", "Second CREATE false validate 2", "Second UPDATE true admit 1", "UPDATE true admit 1",
	}
	// Labels are in the order of their names: name, operation, rejected, type.
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
