package image

import (
	"errors"
	"time"

	config "k8s.io/kubelet/config/v1beta1"
)

// Config is what a node's operator says about images. The zero value works.
type Config struct {
	// HighPercent is how full the disk of the images may be, in percent, before
	// images that nobody uses are removed. 100: they never are.
	HighPercent int
	// LowPercent is how full it is when enough is removed.
	LowPercent int
	// MinAge is how long an image is kept at least.
	MinAge time.Duration
	// MaxAge is how long an image may be unused, however much room there is.
	// Default: for ever.
	MaxAge time.Duration
	// MaxPulls is how many images are pulled at a time.
	MaxPulls int
	// ProviderConfig is a CredentialProviderConfig file, or a directory of them,
	// and ProviderBinDir has the programs that it names. Default: none.
	ProviderConfig, ProviderBinDir string
	// Verify says which pods may use what is on the node.
	Verify Verification
}

// Defaults is what a node takes whose operator says nothing.
func Defaults() Config { return Config{}.WithDefaults() }

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.HighPercent == 0 {
		c.HighPercent = 85
	}
	if c.LowPercent == 0 {
		c.LowPercent = min(80, c.HighPercent-1)
	}
	if c.MinAge == 0 {
		c.MinAge = 2 * time.Minute
	}
	if c.MaxPulls == 0 {
		c.MaxPulls = 4
	}
	if c.Verify.Policy == "" {
		c.Verify.Policy = string(config.NeverVerifyPreloadedImages)
	}
	return c
}

// Check refuses what makes no sense.
func (c Config) Check() error {
	full := c.WithDefaults()
	switch {
	case full.HighPercent < 1 || full.HighPercent > 100:
		return errors.New("--image-gc-high-threshold must be from 1 to 100")
	case full.LowPercent < 0 || full.LowPercent > 100:
		return errors.New("--image-gc-low-threshold must be from 1 to 100")
	case full.LowPercent >= full.HighPercent:
		return errors.New("--image-gc-low-threshold must be less than --image-gc-high-threshold")
	case c.MinAge < 0:
		return errors.New("--minimum-image-ttl-duration must not be negative")
	case c.MaxAge != 0 && c.MaxAge < full.MinAge:
		return errors.New("--image-maximum-gc-age must not be less than --minimum-image-ttl-duration")
	case full.MaxPulls < 1:
		return errors.New("--max-parallel-image-pulls must be 1 or more")
	case (c.ProviderConfig == "") != (c.ProviderBinDir == ""):
		return errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir must be given together")
	}
	return c.Verify.check()
}
