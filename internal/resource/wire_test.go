package resource

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestRecodedObjectsShareNothing(t *testing.T) {
	t.Parallel()
	in := &rbacv1beta1.Role{Rules: []rbacv1beta1.PolicyRule{{Verbs: []string{"get"}, Resources: []string{"pods"}}}}
	in.Name, in.Labels = "reader", map[string]string{"a": "b"}
	out, err := Recode[*rbacv1.Role](in)
	if err != nil {
		t.Fatal(err)
	}
	in.Rules[0].Verbs[0], in.Labels["a"] = "delete", "c"
	if out.Name != "reader" || out.Labels["a"] != "b" || out.Rules[0].Verbs[0] != "get" {
		t.Errorf("got %+v", out)
	}
}

func TestSameWireFillsInTheConversion(t *testing.T) {
	t.Parallel()
	def := Define(Spec[*rbacv1.Role]{
		Names:    Names{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", Plural: "roles"},
		Validate: func(_, _ *rbacv1.Role, errs *Errors) { errs.Required("rules", "") },
		Versions: []Version[*rbacv1.Role]{
			SameWire[*rbacv1beta1.Role](Version[*rbacv1.Role]{Group: "rbac.authorization.k8s.io", Version: "v1beta1"}),
			SameWire[*rbacv1beta1.Role](Version[*rbacv1.Role]{Group: "rbac.authorization.k8s.io", Version: "v0", Validate: func(_, _ *rbacv1.Role, _ *Errors) {}}),
		},
	})
	if _, ok := def.Versions[0].New().(*rbacv1beta1.Role); !ok {
		t.Errorf("New made a %T", def.Versions[0].New())
	}
	for i, want := range []int{1, 0} {
		errs := NewErrors()
		def.Versions[i].Validate(&rbacv1.Role{}, nil, errs)
		if errs.Len() != want {
			t.Errorf("version %d found %d errors, want %d", i, errs.Len(), want)
		}
	}
	if got := def.Versions[0].DefaultPropagation; got != "Background" {
		t.Errorf("default propagation %q", got)
	}
}

func TestNumbersAndPercentages(t *testing.T) {
	t.Parallel()
	cases := []struct {
		value intstr.IntOrString
		n     int
		want  []string
	}{
		{intstr.FromInt32(3), 3, nil},
		{intstr.FromString("25%"), 25, nil},
		{intstr.FromInt32(-1), -1, []string{"spec.n: Invalid value: -1: must be greater than or equal to 0"}},
		{intstr.FromString("150%"), 150, []string{`spec.n: Invalid value: "150%": must not be greater than 100%`}},
		{intstr.FromString("ten"), 0, []string{`spec.n: Invalid value: "ten": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')`}},
	}
	for _, c := range cases {
		errs := NewErrors()
		errs.At("spec").IntOrPercent("n", c.value)
		errs.At("spec").AtMost100Percent("n", c.value)
		var got []string
		for _, e := range errs.List() {
			got = append(got, e.Error())
		}
		if !slices.Equal(got, c.want) || IntOrPercentValue(c.value) != c.n {
			t.Errorf("%s: got %q and %d, want %q and %d", c.value.String(), got, IntOrPercentValue(c.value), c.want, c.n)
		}
	}
}
