package main

var settingsTests = check{"node", "Settings"}

// ofSettings are bugs of settings from a file.
var ofSettings = []mutant{
	{
		name: "settings-unknown-key", does: "a key that is not known is passed over",
		edits: []edit{{"node/settings.go", "		s.bad(key.Line, what, \"unknown key %.64q, must be one of %s\", key.Value, strings.Join(known, \", \"))\n",
			"		_ = strings.Join(known, key.Value)\n"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-key-twice", does: "of a name that is given twice one counts",
		edits:   []edit{{"node/settings.go", "; twice {", "; twice && first == 0 {"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-first-document", does: "of several documents the first counts",
		edits:   []edit{{"node/settings.go", "case len(docs) > 1:", "case false:"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-code-wins", does: "an option in code overrides the file",
		edits:   []edit{{"node/node.go", "slices.Concat(own, opts, n.singletonOptions(name))", "slices.Concat(own, n.singletonOptions(name), opts)"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-heartbeat-of-no-ttl", does: "a heartbeat is a fraction of the Keeper's TTL, whatever the entry's is",
		edits:   []edit{{"node/settings_apply.go", "		ttl = t.ttl\n		opts = append(opts, lease.WithTTL(ttl))", "		opts = append(opts, lease.WithTTL(t.ttl))"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-not-checked-at-start", does: "a policy that can't be kept is found when its name is started",
		edits:   []edit{{"node/node.go", "	if err := n.settle(); err != nil {", "	if err := error(nil); err != nil {"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-ends-on-time", does: "a singleton may be renewed by hand, as its file says",
		edits:   []edit{{"node/settings.go", "t.renewal != nil && !s.named(t) && !t.renewal.Automatic()", "false"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-shorter-prefix", does: "a named lease has the shortest prefix's settings",
		edits:   []edit{{"node/settings_apply.go", "for i := len(name) - 1; t == nil && i > 0 && part == ofLeases; i-- {", "for i := 1; t == nil && i < len(name) && part == ofLeases; i++ {"}},
		hunters: []check{settingsTests},
	},
	{
		name: "settings-unused-untold", does: "a name of the file that is never used is not told",
		edits:   []edit{{"node/stop.go", "	n.tellUnused(false)\n", ""}},
		hunters: []check{settingsTests},
	},
}
