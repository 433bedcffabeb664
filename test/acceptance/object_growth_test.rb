# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_process"
require_relative "../support/small_rails"
require "shellwords"
require "tmpdir"

# In a Rails application under Puma: from "it grows" to the constant that holds what has grown, by the commands that
# each answer suggests.
class ObjectGrowthTest < MemscopeTest
  parallelize_me!

  # What each request leaves in a cache of its class.
  APPLICATION = <<~RUBY.freeze
    #{SmallRails.source}
    Listing = Struct.new(:title, :tags)
    class Catalog
      @listings = {}
      class << self
        def listing(number) = @listings[number] ||= Listing.new("listing \#{number} " * 10, [number.to_s * 12])
      end
    end
    class ListingsController < ActionController::Base
      def index
        listings = (params[:from].to_i...params[:to].to_i).map { |number| Catalog.listing(number) }
        render(plain: listings.size.to_s)
      end
    end
    App.routes.append { get "/listings", to: "listings#index" }
    App.initialize!
    run App
  RUBY

  # Puma with that application, which listens.
  class Server < PumaProcess
    def initialize(directory, preload)
      @directory = directory
      File.write(rackup = File.join(directory, "config.ru"), APPLICATION)
      super(self.class.command("puma", "-b", "tcp://127.0.0.1:0", "-t", "1:2", rackup),
            self.class.environment(preload, { "RAILS_ENV" => "production", "MEMSCOPE_LISTEN" => "1", **sockets }),
            directory)
    end

    def sockets = { "MEMSCOPE_SOCKET_DIRECTORY" => File.join(@directory, "sockets") }

    def get(path) = request(Net::HTTP::Get.new(path)).body
  end

  def setup
    skip_under_sanitizer
    super
  end

  both_allocators "two_commands_lead_to_the_constant" do |preload|
    Dir.mktmpdir do |directory|
      Server.run(directory, preload) do |server|
        assert_equal "1000", server.get("/listings?from=0&to=1000")
        before = File.join(directory, "before.json")
        memscope(server, "doctor", "--pid", server.pid.to_s, "--gc", "--json", "--output", before)

        assert_equal "119000", server.get("/listings?from=1000&to=120000")
        found = memscope(server, "doctor", "--pid", server.pid.to_s, "--gc", "--since", before)

        assert_match(/^ *\[?warning\]?.*Ruby objects hold \d+\.\d MiB more/i, found)
        command = found[/memscope heap --pid \d+/].shellsplit.drop(1)

        assert_match(/^ +\d+\.\d  Catalog @listings (?:→|->) Hash, holding 120,000 Listing$/,
                     memscope(server, *command))
      end
    end
  end

  private

  def memscope(server, *arguments)
    executable = File.join(ChildProcess::ROOT, "exe", "memscope")
    ran = ChildProcess.run_command(*ChildProcess.ruby, executable, *arguments, env: server.sockets)

    assert_includes [0, 1, 2], ran.status.exitstatus, ran
    ran.out
  end
end
