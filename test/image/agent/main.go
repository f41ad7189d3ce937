package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
)

// command runs a sub-command with the arguments after its name and returns the
// exit code.
type command func(args []string) int

var commands = map[string]command{
	"connect":                connect,
	"crd-conversion-webhook": conversionWebhook,
	"dns-server-list":        dnsServerList,
	"dns-suffix":             dnsSuffix,
	"entrypoint-tester":      entrypointTester,
	"etc-hosts":              etcHosts,
	"grpc-health-checking":   grpcHealthChecking,
	"guestbook":              guestbookServer,
	"liveness":               liveness,
	"logs-generator":         logsGenerator,
	"mounttest":              mounttest,
	"netexec":                netexec,
	"nettest":                nettest,
	"nonewprivs":             noNewPrivs,
	"only-one":               onlyOne,
	"pause":                  pause,
	"port-forward-tester":    portForwardTester,
	"porter":                 porter,
	"serve-hostname":         serveHostname,
	"tcp-reset":              tcpReset,
	"test-webserver":         testWebserver,

	"test-service-account-issuer-discovery": issuerDiscovery,

	"web":     web,
	"webhook": webhook,
}

func main() {
	// The image has links to this program for tools that tests call by name.
	if filepath.Base(os.Args[0]) == "curl" {
		os.Exit(curl(os.Args[1:]))
	}
	if len(os.Args) < 2 {
		usage(os.Stderr)
		os.Exit(2)
	}
	name, args := os.Args[1], os.Args[2:]
	run, ok := commands[name]
	switch {
	case name == "help" || name == "--help" || name == "-h":
		usage(os.Stdout)
		return
	case !ok:
		fmt.Fprintf(os.Stderr, "Error: unknown command %q for %q\n", name, filepath.Base(os.Args[0]))
		usage(os.Stderr)
		os.Exit(1)
	}
	os.Exit(run(args))
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "Usage: agnhost COMMAND [flags]\n\nCommands:")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		fmt.Fprintln(w, "  "+name)
	}
}

// flags parses a sub-command's arguments into what define defined, and returns
// what is left of them.
func flags(name string, args []string, define func(f *pflag.FlagSet)) []string {
	f := pflag.NewFlagSet(name, pflag.ExitOnError)
	define(f)
	if err := f.Parse(args); err != nil {
		fail("%v", err)
	}
	return f.Args()
}

// fail prints a message and ends the program.
func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// hostname is the answer of most servers here.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		fail("Error from os.Hostname(): %s", err)
	}
	return name
}
