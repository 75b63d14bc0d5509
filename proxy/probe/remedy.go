package probe

import (
	"fmt"
	"slices"
	"strings"

	"sluice/proxy/iptables"
)

// kernelPackages are the packages with the kernel's modules. Where a distribution has one
// for each kind of machine, the usual one is named.
func kernelPackages() map[string]string {
	return map[string]string{
		RaspberryPiOS: "linux-image-rpi-v8", // -v6, -v7, -v7l and -2712 on other models; raspberrypi-kernel before bookworm
		Debian:        "linux-image-arm64",
		Ubuntu:        "linux-modules-extra-$(uname -r)",
		Alpine:        "linux-lts", // linux-rpi on a Raspberry Pi
	}
}

// programPackages are the packages with the iptables programs.
func programPackages(variant string) map[string]string {
	alpine := "iptables"
	if variant == iptables.Legacy {
		alpine = "iptables-legacy" // apart since 3.19
	}
	return map[string]string{RaspberryPiOS: "iptables", Debian: "iptables", Ubuntu: "iptables", Alpine: alpine}
}

// options splits a list of build options and spells them out.
func options(config string) []string {
	var all []string
	for _, o := range strings.Fields(config) {
		all = append(all, "CONFIG_"+o)
	}
	return all
}

// describe names features for a message, each once with its families.
func describe(features []Feature) string {
	var names []string
	var texts []string
	for _, f := range features {
		if slices.Contains(names, f.Name) {
			continue
		}
		names = append(names, f.Name)
		var families []string
		for _, g := range features {
			if g.Name == f.Name {
				families = append(families, g.Family)
			}
		}
		text := f.Name + " for " + strings.Join(families, " and ")
		var details []string
		if len(f.Config) > 0 {
			details = append(details, strings.Join(f.Config, ", "))
		}
		if f.Module != "" {
			details = append(details, "module "+f.Module)
		}
		if f.Error != "" {
			details = append(details, f.Error)
		}
		if len(details) > 0 {
			text += " [" + strings.Join(details, "; ") + "]"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// Remedy says what to do about features that are missing.
func (h Host) Remedy(missing []Feature) string {
	var modules, configs []string
	for _, f := range missing {
		if f.Module != "" && !slices.Contains(modules, f.Module) {
			modules = append(modules, f.Module)
		}
		for _, c := range f.Config {
			if !slices.Contains(configs, c) {
				configs = append(configs, c)
			}
		}
	}
	if len(missing) == 0 {
		return ""
	}
	install := h.install(missing[0].Package)
	switch {
	case len(modules) == 0:
		return install
	case !h.Modules:
		return fmt.Sprintf("the modules of the running kernel %s are not in /lib/modules: start the machine again if the kernel was updated, else %s, or use a kernel with %s",
			h.Kernel, install, strings.Join(configs, ", "))
	}
	return fmt.Sprintf("modprobe -a %s; if there is no such module, %s, or use a kernel with %s", strings.Join(modules, " "), install, strings.Join(configs, ", "))
}

// install says what to install here, or on each distribution if this one is none of those that are known.
func (h Host) install(packages map[string]string) string {
	commands := map[string]string{RaspberryPiOS: "apt install ", Debian: "apt install ", Ubuntu: "apt install ", Alpine: "apk add "}
	if p := packages[h.Distribution]; p != "" {
		return commands[h.Distribution] + p
	}
	var all []string
	for _, d := range Distributions() {
		if p := packages[d]; p != "" {
			all = append(all, p+" ("+d+")")
		}
	}
	return "install " + strings.Join(all, ", ")
}
