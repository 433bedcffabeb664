# frozen_string_literal: true

require_relative "../../test_helper"
require "pathname"
require_relative "../../support/planned_settings"

# What each setting takes, in code and in its environment variable.
class SettingsTest < MemscopeTest
  include PlannedSettings

  SETTINGS = Memscope::Configuration::SETTINGS
  CALLABLE = ->(_request) { true }
  WRITER = Struct.new(:info, :warn).new
  ABSENT = Object.new.freeze

  # For each setting, the accepted values, and how the configuration holds them.
  GOOD = {
    listen: { true => true, false => false, "/run/a.sock" => "/run/a.sock", Pathname("/run/b") => "/run/b" },
    socket_directory: { nil => nil, "/run/app" => "/run/app", Pathname("/run/app") => "/run/app" },
    username: { nil => nil, "memory" => "memory" }, password: { nil => nil, "a:b\xff" => "a:b\xff" },
    authorize: { nil => nil, CALLABLE => CALLABLE },
    actions: { true => true, false => false },
    worker_interval_seconds: { 1 => 1, 3600 => 3600, 1.5 => 1.5, 2.0 => 2, Rational(5, 2) => 2.5 },
    metrics_ledger_interval_seconds: { nil => nil, 86_400 => 86_400 },
    metrics_arenas: { true => true, false => false }, metrics_objects: { true => true },
    objects_profile: { true => true, false => false },
    history: { true => true, false => false }, black_box: { true => true, false => false, "/boxes" => "/boxes" },
    release: { nil => nil, "4f2c" => "4f2c" },
    policy: { off: :off, observe: :observe, act: :act }, policy_soft: { 0.1 => 0.1, Rational(3, 4) => 0.75, 1 => 1.0 },
    policy_interval_seconds: { 1 => 1, 604_800 => 604_800 }, policy_min_uptime_seconds: { 0 => 0, 1.5 => 1.5 },
    policy_supervised: { true => true, false => false },
    background_thread: { true => true, false => false },
    logger: { nil => nil, WRITER => WRITER }
  }.freeze

  BAD = {
    listen: [nil, 1, "1", "run.sock", "", "\0run", "/run\0", :true, []], # rubocop:disable Lint/BooleanSymbol
    socket_directory: ["run", "", true, "\0x"], username: ["", "a:b", :a, "a\0"], password: ["", 1, "a\0"],
    authorize: [true, "call", Object.new], actions: [nil, 1, "true"],
    worker_interval_seconds: [nil, 0, 0.99, 3601, -1, Float::NAN, Float::INFINITY, "10", Complex(1, 1)],
    metrics_ledger_interval_seconds: [0, 86_401, false], metrics_arenas: [nil, 0], metrics_objects: [nil, 0],
    objects_profile: [nil, :no_ractors, 0.01], history: [nil, 1], black_box: [nil, "boxes"], release: ["", 1, "a\0"],
    background_thread: [nil, "1"],
    policy: [nil, true, "act", :acts], policy_soft: [nil, 0, 1.01, 80, "0.8", Float::NAN],
    policy_interval_seconds: [nil, 0, 604_801], policy_min_uptime_seconds: [nil, -1],
    policy_supervised: [nil, 1],
    logger: [true, $stderr, "log"]
  }.freeze

  # The same for texts of environment variables.
  GOOD_TEXT = {
    listen: { "1" => true, "true" => true, "0" => false, "false" => false, "/a.sock" => "/a.sock" },
    socket_directory: { "/run" => "/run" }, username: { "memory" => "memory" }, password: { "1" => "1", " " => " " },
    actions: { "0" => false, "1" => true, "on" => true, "off" => false, "Yes" => true, "NO" => false, "TRUE" => true,
               "False" => false }, worker_interval_seconds: { "1" => 1, "2.5" => 2.5 },
    metrics_ledger_interval_seconds: { "60" => 60 }, metrics_arenas: { "1" => true },
    metrics_objects: { "1" => true }, objects_profile: { "1" => true, "0" => false },
    history: { "0" => false }, black_box: { "0" => false, "/boxes" => "/boxes" }, release: { "4f2c" => "4f2c" },
    policy: { "act" => :act, "OFF" => :off }, policy_soft: { "0.75" => 0.75, "1" => 1.0 },
    policy_interval_seconds: { "60" => 60 }, policy_min_uptime_seconds: { "0" => 0 },
    policy_supervised: { "1" => true },
    background_thread: { "1" => true }
  }.freeze

  BAD_TEXT = {
    listen: ["si", "run.sock", "\xff", " 1", "@abstract"], socket_directory: ["run"], username: ["a:b"],
    actions: ["of", "none", "0 ", "\xff"],
    worker_interval_seconds: ["0", "1e3", "0x10", "10 s", "-1", "nan", "9" * 50, "\xff"],
    metrics_ledger_interval_seconds: %w[nil 86401], metrics_arenas: ["/a"], metrics_objects: ["/a"],
    objects_profile: %w[never 0.01], history: ["never"], black_box: ["boxes"], release: ["\0"],
    background_thread: ["2"],
    policy: ["1", "acts", "\xff"], policy_soft: ["80", "80%", "0"], policy_interval_seconds: ["0"],
    policy_min_uptime_seconds: ["-1"], policy_supervised: ["2"]
  }.freeze

  def test_the_settings_there_are
    assert_equal DEFAULTS, SETTINGS.transform_values(&:default)
    assert_equal(DEFAULTS, SETTINGS.to_h { |name, setting| [name, setting.read({}).first] })
    assert_empty(SETTINGS.each_value.reject { |setting| setting.frozen? && setting.sentence.end_with?(".") })
    assert_equal(DEFAULTS.keys - %i[authorize logger], SETTINGS.each_value.select(&:variable).map(&:name))
    assert_equal SETTINGS.keys, GOOD.keys
  end

  GOOD.each do |name, values|
    define_method("test_what_#{name}_takes") do
      values.each do |given, held|
        taken = SETTINGS[name].check(given)

        held.nil? ? assert_nil(taken) : assert_equal(held, taken)

        assert_equal held.class, taken.class
        assert_predicate taken, :frozen? unless taken.equal?(given)
      end
    end

    define_method("test_what_#{name}_refuses") do
      BAD.fetch(name).each do |given|
        error = assert_raises(ArgumentError, given.inspect) { SETTINGS[name].check(given) }

        shown = name == :password ? "a secret #{given.class}" : given.inspect

        assert_equal "Memscope.configure: #{name}: given #{shown}, allowed: #{SETTINGS[name].allowed}", error.message
      end
    end
  end

  GOOD_TEXT.each do |name, texts|
    define_method("test_what_the_variable_of_#{name}_can_be") do
      variable = SETTINGS[name].variable

      texts.each { |text, held| assert_equal [held, nil], SETTINGS[name].read({ variable => text }) }
      assert_equal [DEFAULTS[name], nil], SETTINGS[name].read({ variable => "" })
      BAD_TEXT.fetch(name, []).each do |text|
        error = "#{variable}: given #{text.inspect}, allowed: #{SETTINGS[name].allowed_in_environment}"

        value, invalid = SETTINGS[name].read({ variable => text })

        assert_equal [SAFE.fetch(name, DEFAULTS[name]), error], [value, invalid.message]
      end
    end
  end
end
