# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/generated_application"

# Runs `rails generate memscope:install` in an application as `rails new` makes it, and boots it with the result.
class GeneratorTest < MemscopeTest
  parallelize_me!

  INITIALIZER = "config/initializers/memscope.rb"
  SEEN = "c = Memscope.configuration; puts [c.listen, c.username, c.actions].inspect"

  def test_a_generated_application
    GeneratedApplication.open do |application|
      generates(application)
      boots_with_it_as_it_is(application)
      boots_with_it_as_it_is_changed(application)
      tells_what_is_wrong(application)
    end
  end

  private

  def generates(application)
    said = succeed(application.run("bin/rails", "generate", "memscope:install")).out
    text = application.read(INITIALIZER)
    settings = Memscope::Configuration::SETTINGS

    assert_match(/create +config.initializers.memscope\.rb/, said)
    assert_includes said, %(  mount Memscope::Web => "/memscope"\n)
    [said, text].each { |told| assert_match(/the pages are closed|They are closed/i, told) }
    assert_equal settings.keys, text.scan(/^  # c\.(\w+) = /).flatten.map(&:to_sym)
    assert_empty(settings.each_value.filter_map(&:variable).reject { |variable| text.include?(" #{variable}.") })
    assert_empty(text.lines(chomp: true).reject { |line| line.size <= 120 && line !~ /\s\z/ })
  end

  # With every setting commented out, the application boots, and the rake tasks exist.
  def boots_with_it_as_it_is(application)
    tasks = succeed(application.run("bin/rails", "--tasks", "memscope")).out.scan(/^\S+ memscope:(\w+)/).flatten
    found = succeed(application.run("bin/rails", "runner", SEEN, env: { "RAILS_ENV" => "production" })).out

    assert_equal %w[census doctor heap purge report], tasks
    assert_equal "[false, nil, true]", found.lines.last.chomp
  end

  # With settings in the environment's file, and with every commented line enabled; the initializer overrides that file.
  def boots_with_it_as_it_is_changed(application)
    path = "config/environments/production.rb"
    lines = "  config.memscope.username = \"x\"\n  config.memscope.actions = false\nend"
    application.write(path, application.read(path).sub(/^end$/, lines))
    application.write(INITIALIZER, application.read(INITIALIZER).sub("# c.username", "c.username"))
    found = succeed(application.run("bin/rails", "runner", SEEN, env: { "RAILS_ENV" => "production" })).out

    assert_equal '[false, "memory", false]', found.lines.last.chomp
  end

  def tells_what_is_wrong(application)
    application.write(INITIALIZER, "Memscope.configure { |c| c.usrname = 1 }\n")
    ran = application.run("bin/rails", "runner", "1")

    refute_predicate ran, :success?
    assert_includes ran.err, "given the setting usrname, allowed: listen, socket_directory, username"
  end

  def succeed(ran)
    assert_predicate ran, :success?, ran
    ran
  end
end
