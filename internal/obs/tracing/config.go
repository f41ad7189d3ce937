package tracing

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Config says what is traced, and where it goes.
type Config struct {
	// Endpoint is the collector's: host:port, or an address of gRPC whose scheme is dns, unix or unix-abstract.
	// Nil: localhost:4317.
	Endpoint *string `json:"endpoint,omitempty"`
	// SamplingRatePerMillion is how many of a million traces that begin here are sent. Nil: none; those that begin
	// elsewhere are, if they are sent there.
	SamplingRatePerMillion *int32 `json:"samplingRatePerMillion,omitempty"`
}

const (
	kind       = "TracingConfiguration"
	maxPerTrip = 1_000_000
)

// versions are those in which the configuration may be written, the newest first.
var versions = []string{"apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"}

// file is a configuration as a file has it.
type file struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Config
}

// Read reads a TracingConfiguration file.
func Read(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f file
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Kind != kind || !slices.Contains(versions, f.APIVersion) {
		return nil, fmt.Errorf("%s: want kind: %s and apiVersion: %s, got %q and %q", path, kind, strings.Join(versions, ", or "), f.Kind, f.APIVersion)
	}
	if err := f.Check(nil); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &f.Config, nil
}

// Check says what is wrong with the configuration, whose fields are below a path. That of nil is right.
func (c *Config) Check(at *field.Path) error {
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if rate := c.SamplingRatePerMillion; rate != nil {
		switch below := at.Child("samplingRatePerMillion"); {
		case *rate < 0:
			errs = append(errs, field.Invalid(below, *rate, "sampling rate must be positive"))
		case *rate > maxPerTrip:
			errs = append(errs, field.Invalid(below, *rate, "sampling rate per million must be less than or equal to one million"))
		}
	}
	if c.Endpoint != nil {
		if err := checkEndpoint(*c.Endpoint); err != nil {
			errs = append(errs, field.Invalid(at.Child("endpoint"), *c.Endpoint, err.Error()))
		}
	}
	return errs.ToAggregate()
}

func checkEndpoint(endpoint string) error {
	if !strings.Contains(endpoint, "//") {
		endpoint = "dns://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"dns", "unix", "unix-abstract"}, u.Scheme) {
		return fmt.Errorf("unsupported scheme: %s.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md", u.Scheme)
	}
	return nil
}

// Setting is a configuration as a flag has it: endpoint=localhost:4317,samplingRatePerMillion=100. Nothing after the
// flag's name is a configuration, too: that of who is told by others what to trace.
type Setting struct{ Config *Config } // nil: nothing is traced

// Set reads it.
func (s *Setting) Set(text string) error {
	var endpoint *string
	var rate *int32
	for part := range strings.SplitSeq(text, ",") {
		switch key, value, _ := strings.Cut(part, "="); {
		case part == "", value == "" && (key == "endpoint" || key == "samplingRatePerMillion"): // the default
		case key == "endpoint":
			endpoint = &value
		case key == "samplingRatePerMillion":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return fmt.Errorf("samplingRatePerMillion: %q: want a whole number up to one million", value)
			}
			few := int32(n)
			rate = &few
		default:
			return fmt.Errorf("there is no %q: want endpoint=localhost:4317,samplingRatePerMillion=100", key)
		}
	}
	c := &Config{Endpoint: endpoint, SamplingRatePerMillion: rate}
	if err := c.Check(nil); err != nil {
		return err
	}
	s.Config = c
	return nil
}

// String is the text that Set takes.
func (s *Setting) String() string {
	var parts []string
	if s.Config != nil && s.Config.Endpoint != nil {
		parts = append(parts, "endpoint="+*s.Config.Endpoint)
	}
	if s.Config != nil && s.Config.SamplingRatePerMillion != nil {
		parts = append(parts, "samplingRatePerMillion="+strconv.Itoa(int(*s.Config.SamplingRatePerMillion)))
	}
	return strings.Join(parts, ",")
}

// Type is what help calls the value.
func (s *Setting) Type() string { return "endpoint=address,..." }
