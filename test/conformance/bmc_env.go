package conformance

import (
	"strconv"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// RealBMC reads a real BMC for ExerciseBMC from the environment. It returns false when none is
// given. The suite only reads the machine unless a variable allows more.
//
//	SLIPWAY_TEST_BMC_ADDRESS         host:port or https URL
//	SLIPWAY_TEST_BMC_USER, _PASSWORD its login
//	SLIPWAY_TEST_BMC_PIN             SHA-256 of the leaf's key, hex
//	SLIPWAY_TEST_BMC_SYSTEM          system id, when there are several
//	SLIPWAY_TEST_BMC_POWER=1         allow power changes and boot overrides
//	SLIPWAY_TEST_BMC_WRONG_PASSWORD=1 allow one login with a wrong password
func RealBMC(getenv func(string) string, opener providers.BMCOpener) (f BMCFixture, ok bool) {
	return realBMC(getenv, "SLIPWAY_TEST_BMC_", opener)
}

// RealIPMI does the same for a BMC over IPMI, which has neither a pin nor a system id.
//
//	SLIPWAY_TEST_IPMI_ADDRESS         host:port
//	SLIPWAY_TEST_IPMI_USER, _PASSWORD its login
//	SLIPWAY_TEST_IPMI_SUITE           cipher suite, 17 or 3
//	SLIPWAY_TEST_IPMI_POWER=1         allow power changes and boot overrides
//	SLIPWAY_TEST_IPMI_WRONG_PASSWORD=1 allow one login with a wrong password
func RealIPMI(getenv func(string) string, opener providers.BMCOpener) (f BMCFixture, ok bool) {
	if f, ok = realBMC(getenv, "SLIPWAY_TEST_IPMI_", opener); ok {
		// The opener refuses -1, which stands for a text that is no number.
		if suite := getenv("SLIPWAY_TEST_IPMI_SUITE"); suite != "" {
			if f.Target.CipherSuite, _ = strconv.Atoi(suite); f.Target.CipherSuite == 0 {
				f.Target.CipherSuite = -1
			}
		}
		f.Lacks = IPMILacks()
	}
	return f, ok
}

// IPMILacks returns what no BMC says over IPMI.
func IPMILacks() BMCLacks {
	return BMCLacks{Pin: true, Addresses: true, Drives: true, Lockout: true, Targets: []providers.BootTarget{providers.BootUEFIHTTP}}
}

func realBMC(getenv func(string) string, prefix string, opener providers.BMCOpener) (BMCFixture, bool) {
	address := getenv(prefix + "ADDRESS")
	if address == "" {
		return BMCFixture{}, false
	}
	return BMCFixture{
		Opener: opener,
		Target: providers.BMCTarget{Rule: spec.AddressRule{Anywhere: true},
			Address: address, User: getenv(prefix + "USER"), Password: providers.NewSecret(getenv(prefix + "PASSWORD")),
			PinSHA256: getenv(prefix + "PIN"), SystemID: getenv(prefix + "SYSTEM"),
		},
		ReadOnly:      getenv(prefix+"POWER") != "1",
		WrongPassword: getenv(prefix+"WRONG_PASSWORD") == "1",
		BootTargets:   []providers.BootTarget{providers.BootPXE},
	}, true
}
