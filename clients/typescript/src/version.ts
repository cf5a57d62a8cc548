/** The version of this package: that of the broker, and of package.json. */
export const VERSION = "0.1.0";
