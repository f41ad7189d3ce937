package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kemudi/kemudi/internal/version"
)

func newVersion() *cobra.Command {
	var output outputFlag
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  kemudi version\n  kemudi version -o json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			info := version.Info()
			if output == "json" {
				return printJSON(info)
			}
			fmt.Printf("kemudi %s (Kubernetes %s, %s, %s)\n", version.Version, info.GitVersion, info.GoVersion, info.Platform)
			return nil
		},
	}
	addOutput(c, &output)
	return c
}

// versionFlag is --version of a part, as upstream's programs have it. Other programs call a node agent with it.
type versionFlag string

const (
	versionName = "version"
	rawVersion  = "raw"
)

func (f *versionFlag) add(set *pflag.FlagSet) {
	set.Var(f, versionName, "print the version of Kubernetes, and end; raw: with all that is known of it")
	set.Lookup(versionName).NoOptDefVal = "true"
}

func (f *versionFlag) String() string { return string(*f) }

func (*versionFlag) Type() string { return "bool, or raw" }

func (f *versionFlag) Set(s string) error {
	if s == rawVersion {
		*f = rawVersion
		return nil
	}
	asked, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("want true, false or raw")
	}
	*f = versionFlag(strconv.FormatBool(asked))
	return nil
}

// print prints the version and returns true if it is asked for.
func (f *versionFlag) print() bool {
	switch *f {
	case "true":
		fmt.Printf("Kubernetes %s\n", version.Git())
	case rawVersion:
		fmt.Printf("%#v\n", version.Info())
	default:
		return false
	}
	return true
}
