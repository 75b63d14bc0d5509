package agent

import (
	"testing"

	"sluice/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
