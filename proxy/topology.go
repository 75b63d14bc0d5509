package proxy

// A selection is a set of endpoints by the traits that its members have. The
// zero selection has no members.
type selection traits

func (s selection) includes(t traits) bool { return s != 0 && t.has(traits(s)) }

// selectCluster chooses the endpoints for the traffic policy Cluster: the ready
// ones that topology hints allow here; if none is ready, those that serve while they terminate.
func selectCluster(list []endpoint) selection {
	anyReady, anyFallback := false, false
	allNodeHints, allZoneHints := true, true
	anyForNode, anyForZone := false, false
	for _, ep := range list {
		if !ep.has(ready) {
			anyFallback = anyFallback || ep.has(serving|terminating)
			continue
		}
		anyReady = true
		allNodeHints = allNodeHints && ep.has(hasNodeHints)
		allZoneHints = allZoneHints && ep.has(hasZoneHints)
		anyForNode = anyForNode || ep.has(forNode)
		anyForZone = anyForZone || ep.has(forZone)
	}
	switch {
	case anyReady && allNodeHints && anyForNode:
		return selection(ready | forNode)
	case anyReady && allZoneHints && anyForZone:
		return selection(ready | forZone)
	case anyReady:
		return selection(ready)
	case anyFallback:
		return selection(serving | terminating)
	}
	return 0
}

// selectLocal chooses the endpoints for the traffic policy Local, which knows no hints.
func selectLocal(list []endpoint) selection {
	var s selection
	for _, ep := range list {
		if ep.has(local | ready) {
			return selection(local | ready)
		}
		if ep.has(local | serving | terminating) {
			s = selection(local | serving | terminating)
		}
	}
	return s
}
