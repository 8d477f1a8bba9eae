package providertest

import "github.com/slipway-cloud/slipway/providers"

// RealBMC reads a real BMC for ExerciseBMC from the environment; ok is false
// when none is given. The machine is only read unless told otherwise.
//
//	SLIPWAY_TEST_BMC_ADDRESS         host:port or https URL
//	SLIPWAY_TEST_BMC_USER, _PASSWORD its login
//	SLIPWAY_TEST_BMC_PIN             SHA-256 of the leaf's key, hex
//	SLIPWAY_TEST_BMC_SYSTEM          system id, when there are several
//	SLIPWAY_TEST_BMC_POWER=1         allow power changes and boot overrides
//	SLIPWAY_TEST_BMC_WRONG_PASSWORD=1 allow one login with a wrong password
func RealBMC(getenv func(string) string, opener providers.BMCOpener) (f BMCFixture, ok bool) {
	const prefix = "SLIPWAY_TEST_BMC_"
	address := getenv(prefix + "ADDRESS")
	if address == "" {
		return BMCFixture{}, false
	}
	return BMCFixture{
		Opener: opener,
		Target: providers.BMCTarget{
			Address: address, User: getenv(prefix + "USER"), Password: providers.NewSecret(getenv(prefix + "PASSWORD")),
			PinSHA256: getenv(prefix + "PIN"), SystemID: getenv(prefix + "SYSTEM"),
		},
		ReadOnly:      getenv(prefix+"POWER") != "1",
		WrongPassword: getenv(prefix+"WRONG_PASSWORD") == "1",
		BootTargets:   []providers.BootTarget{providers.BootPXE},
	}, true
}
