package device_test

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/cel/device"
)

func gpu() *resourcev1.Device {
	return &resourcev1.Device{
		Name:                     "gpu-0",
		AllowMultipleAllocations: ptr.To(true),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model":                  {StringValue: ptr.To("a100")},
			"driverVersion":          {VersionValue: ptr.To("2.11.0")},
			"healthy":                {BoolValue: ptr.To(true)},
			"cores":                  {IntValue: ptr.To[int64](108)},
			"other.example.com/numa": {IntValue: ptr.To[int64](1)},
			"lanes":                  {IntValues: []int64{1, 2}},
			"modes":                  {StringValues: []string{"a", "b"}},
			"versions":               {VersionValues: []string{"1.0.0"}},
			"flags":                  {BoolValues: []bool{false, true}},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}},
	}
}

func TestExpressionsSeeWhatADeviceIs(t *testing.T) {
	in, err := device.NewInput("gpu.example.com", gpu())
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]bool{
		`device.driver == "gpu.example.com"`:                                                                    true,
		`device.driver == "other.example.com"`:                                                                  false,
		`device.allowMultipleAllocations`:                                                                       true,
		`device.attributes["gpu.example.com"].model == "a100"`:                                                  true,
		`device.attributes["gpu.example.com"].healthy`:                                                          true,
		`device.attributes["gpu.example.com"].cores > 200`:                                                      false,
		`device.attributes["other.example.com"].numa == 1`:                                                      true,
		`device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("2.9.0"))`:                     true,
		`device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`:                            true,
		`device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("80Gi"))`:                             false,
		`has(device.attributes["nobody.example.com"].x)`:                                                        false,
		`"other.example.com" in device.attributes`:                                                              true,
		`device.attributes["nobody.example.com"].?x.orValue("none") == "none"`:                                  true,
		`cel.bind(own, device.attributes["gpu.example.com"], own.healthy && own.cores == 108)`:                  true,
		`device.attributes["gpu.example.com"].lanes.exists(l, l == 2)`:                                          true,
		`"b" in device.attributes["gpu.example.com"].modes`:                                                     true,
		`device.attributes["gpu.example.com"].flags.all(f, f)`:                                                  false,
		`device.attributes["gpu.example.com"].versions.exists(v, v.isLessThan(semver("2.0.0")))`:                true,
		`device.driver.endsWith(".example.com") && device.attributes["gpu.example.com"].model.matches("^a1.+")`: true,
	} {
		s, err := device.Compile(expression)
		if err != nil {
			t.Errorf("compile %s: %v", expression, err)
			continue
		}
		if got, err := s.Matches(t.Context(), in); err != nil || got != want {
			t.Errorf("%s: got %t, %v, want %t", expression, got, err, want)
		}
	}
}

func TestExpressionsThatCannotBeEvaluatedAreErrors(t *testing.T) {
	in, err := device.NewInput("gpu.example.com", gpu())
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		`device.attributes["gpu.example.com"].speed > 1`:    "no such key: speed",
		`device.attributes["nobody.example.com"].speed > 1`: "no such key: speed",
		`device.attributes["gpu.example.com"].model`:        "could not be converted to bool",
		`device.attributes["gpu.example.com"].cores > "a"`:  "no such overload",
	} {
		s, err := device.Compile(expression)
		if err != nil {
			t.Errorf("compile %s: %v", expression, err)
			continue
		}
		if got, err := s.Matches(t.Context(), in); got || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %t, %v, want an error with %q", expression, got, err, want)
		}
	}
	if _, err := device.Compile("device.name"); err == nil {
		t.Error("an expression about what there is not was compiled")
	}
	bad := &resourcev1.Device{Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"v": {VersionValue: ptr.To("one")}}}
	if _, err := device.NewInput("d", bad); err == nil {
		t.Error("a device with a bad version was accepted")
	}
	if _, err := device.NewInput("d", &resourcev1.Device{Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"v": {}}}); err == nil {
		t.Error("a device with an attribute of no value was accepted")
	}
}

func TestCostOfAnExpressionIsKnownBeforeItIsStored(t *testing.T) {
	if cost, err := device.Check(`device.driver == "d"`); err != nil || cost > 10 {
		t.Errorf("a simple expression costs %d, %v", cost, err)
	}
	if cost, err := device.Check(`device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, a + b + c == "")))`); err != nil || cost < 1000 {
		t.Errorf("a loop in a loop in a loop costs %d, %v", cost, err)
	}
	if _, err := device.Check(`1`); err == nil {
		t.Error("a number was accepted as a choice")
	}
}

func BenchmarkMatches(b *testing.B) {
	in, err := device.NewInput("gpu.example.com", gpu())
	if err != nil {
		b.Fatal(err)
	}
	s, err := device.Compile(`device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].cores > 100`)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := s.Matches(b.Context(), in); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
