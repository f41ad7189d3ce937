package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// defaultConfig is the file that is read if it exists and no other is named.
const defaultConfig = "/etc/kemudi/config.yaml"

// configFlag names the file of settings. It is a setting itself, but no key of
// the file.
const configFlag = "config"

// settle gives the flags of a command that are not on its command line the
// values that the environment (--data-dir: KEMUDI_DATA_DIR) or else the
// configuration file (data-dir: ...) has for them. What is wrong there is
// refused before the command begins.
func settle(c *cobra.Command) error {
	if c.HasSubCommands() && !hasFlags(c) {
		return nil // it only shows its help
	}
	flags := c.Flags()
	if err := fromEnvironment(flags); err != nil {
		return errUsage{err}
	}
	file, err := flags.GetString(configFlag)
	if err != nil {
		return fmt.Errorf("read flags: %w", err)
	}
	named := flags.Changed(configFlag)
	if !named {
		file = defaultConfig
	}
	data, err := os.ReadFile(filepath.Clean(file))
	switch {
	case errors.Is(err, os.ErrNotExist) && !named:
		return nil
	case err != nil:
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := fromFile(c, data); err != nil {
		return errUsage{fmt.Errorf("configuration %s: %w", file, err)}
	}
	return nil
}

// hasFlags says that a command has flags of its own, and so does something itself.
func hasFlags(c *cobra.Command) (has bool) {
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { has = has || f.Name != "help" })
	return has
}

// asksOnly says that a flag is a question, and no setting.
func asksOnly(f *pflag.Flag) bool { return f.Name == "help" || f.Name == versionName }

// fromEnvironment sets the flags that were not given from KEMUDI_* variables.
func fromEnvironment(f *pflag.FlagSet) error {
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		name := environmentName(flag.Name)
		if v, ok := os.LookupEnv(name); ok && !flag.Changed && !asksOnly(flag) {
			if err := f.Set(flag.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}

// environmentName is the variable that stands for a flag.
func environmentName(flag string) string {
	return "KEMUDI_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromFile sets the command's flags that have no value yet from a YAML
// document. All commands share the file: a key must be the flag of some
// command, and those of other commands are passed over.
func fromFile(c *cobra.Command, data []byte) error {
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return err
	}
	known := map[string]bool{}
	collectFlags(c.Root(), known)
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !known[key] {
			errs = append(errs, fmt.Errorf("unknown key %q", key))
			continue
		}
		flag := c.Flags().Lookup(key)
		if flag == nil || flag.Changed || values[key] == nil {
			continue
		}
		if err := setFlag(c.Flags(), flag, values[key]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// collectFlags notes the flags of a command and of those below it.
func collectFlags(c *cobra.Command, known map[string]bool) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		known[f.Name] = !asksOnly(f) && f.Name != configFlag
	})
	for _, sub := range c.Commands() {
		if sub.PersistentPreRunE == nil { // else it reads no settings
			collectFlags(sub, known)
		}
	}
}

// setFlag sets a flag from a YAML value: a list or a map is what the same
// parts, with commas between them, are on the command line.
func setFlag(flags *pflag.FlagSet, flag *pflag.Flag, value any) error {
	switch value := value.(type) {
	case []any:
		parts := make([]string, len(value))
		for i, v := range value {
			var err error
			if parts[i], err = scalar(v); err != nil {
				return err
			}
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			flag.Changed = true
			return list.Replace(parts)
		}
		return flags.Set(flag.Name, strings.Join(parts, ","))
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(value)) {
			v, err := scalar(value[key])
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			parts = append(parts, key+"="+v)
		}
		return flags.Set(flag.Name, strings.Join(parts, ","))
	}
	text, err := scalar(value)
	if err != nil {
		return err
	}
	return flags.Set(flag.Name, text)
}

func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case nil:
		return "", nil
	}
	return "", fmt.Errorf("%v is neither a text, a number nor true or false", v)
}
