package cloud

import (
	"testing"
	"time"
)

func TestCloudsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{Name: "external"}, ""},
		{Options{Name: "loopback", ConfigFile: "cloud.yaml"}, ""},
		{Options{Name: "aws"}, `--cloud-provider "aws" is not built in: there are bare-metal and loopback; for another one say external, and run the program of its vendor beside`},
		{Options{Name: "external", ConfigFile: "cloud.yaml"}, "--cloud-config is of a built-in --cloud-provider"},
		{Options{ConfigFile: "cloud.yaml"}, "--cloud-config is of a built-in --cloud-provider"},
		{Options{RoutePeriod: -time.Second}, "--route-reconciliation-period -1s must not be negative"},
	} {
		got := ""
		if err := c.o.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.o, got, c.want)
		}
	}
}
