package cmd

import (
	stdflag "flag"
	"slices"

	"github.com/urfave/cli/v2"

	"sluice/agent/config"
)

// flag is a command's flag. It records what it was given, and leaves the reading to others.
type flag struct {
	name, alias string
	placeholder string // empty: the flag takes no value
	def         string // for the help text
	usage       string
	values      []string // that it can have; nil if they cannot be listed
	given       []string
}

var _ cli.DocGenerationFlag = (*flag)(nil)
var _ cli.VisibleFlag = (*flag)(nil)

// last returns the value that was given last, or the default.
func (f *flag) last() string {
	if len(f.given) == 0 {
		return f.def
	}
	return f.given[len(f.given)-1]
}

// on tells whether a flag without value was given.
func (f *flag) on() bool { return f.last() == "true" }

// Apply implements cli.Flag.
func (f *flag) Apply(set *stdflag.FlagSet) error {
	for _, name := range f.Names() {
		set.Var((*flagValue)(f), name, f.usage)
	}
	return nil
}

// Names implements cli.Flag.
func (f *flag) Names() []string {
	if f.alias == "" {
		return []string{f.name}
	}
	return []string{f.name, f.alias}
}

// IsSet implements cli.Flag.
func (f *flag) IsSet() bool { return len(f.given) > 0 }

// String implements cli.Flag.
func (f *flag) String() string { return "--" + f.name }

// TakesValue implements cli.DocGenerationFlag.
func (f *flag) TakesValue() bool { return f.placeholder != "" }

// GetUsage implements cli.DocGenerationFlag.
func (f *flag) GetUsage() string { return f.usage }

// GetValue implements cli.DocGenerationFlag.
func (f *flag) GetValue() string { return f.last() }

// GetDefaultText implements cli.DocGenerationFlag.
func (f *flag) GetDefaultText() string { return f.def }

// GetEnvVars implements cli.DocGenerationFlag. Package config reads the environment.
func (f *flag) GetEnvVars() []string { return nil }

// IsVisible implements cli.VisibleFlag.
func (f *flag) IsVisible() bool { return true }

// flagValue is how the standard library's parser sees a flag.
type flagValue flag

// Set implements flag.Value.
func (v *flagValue) Set(s string) error { v.given = append(v.given, s); return nil }

// String implements flag.Value. The library copies it from a name to its alias.
func (v *flagValue) String() string { return (*flag)(v).last() }

// IsBoolFlag lets the parser accept the flag without a value.
func (v *flagValue) IsBoolFlag() bool { return v.placeholder == "" }

// configFlags are flags for the options with these names, for all without names.
type configFlags []*flag

func newConfigFlags(names ...string) configFlags {
	var flags configFlags
	for _, o := range config.Options() {
		if len(names) > 0 && !slices.Contains(names, o.Name) {
			continue
		}
		flags = append(flags, &flag{name: o.Name, alias: o.Alias, placeholder: o.Placeholder, def: o.Default, usage: o.Usage, values: o.Values})
	}
	return flags
}

// and returns the flags for a command that has others as well.
func (flags configFlags) and(others ...*flag) []cli.Flag {
	var all []cli.Flag
	for _, f := range append(others, flags...) {
		all = append(all, f)
	}
	return all
}

// sources are what the configuration is read from.
func (flags configFlags) sources() config.Sources {
	given := map[string][]string{}
	for _, f := range flags {
		if f.IsSet() {
			given[f.name] = f.given
		}
	}
	return config.FromProcess(given)
}

// given tells whether the command line sets an option.
func (flags configFlags) given(name string) bool {
	return slices.ContainsFunc(flags, func(f *flag) bool { return f.name == name && f.IsSet() })
}

// load reads the configuration.
func (flags configFlags) load() (config.Config, []string, error) {
	cfg, warnings, err := config.Load(flags.sources())
	if err != nil {
		return cfg, warnings, usageError(err)
	}
	return cfg, warnings, nil
}
